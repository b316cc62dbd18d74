"""The unattended duties of a server: reports to its supervisor, reloads of settings, a log that stays short."""
