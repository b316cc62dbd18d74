"""Who may ask for what over the native protocol: logins, and the one guard of all calls."""
