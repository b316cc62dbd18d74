"""The server's own keys, and where their values come from."""
