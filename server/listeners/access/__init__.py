"""The peer's identity and permissions, for connections of every protocol."""
