"""What a server does that nobody looks after: word to its supervisor, settings read again, a log that stays short."""
