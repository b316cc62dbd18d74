"""The log server: storage, actors, broker, listeners."""
