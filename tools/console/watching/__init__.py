"""A server as the console sees it: its connection, samples of what it does, and their history."""
