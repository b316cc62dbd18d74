"""Share groups (KIP-932): who owns what their members were given, and where it is stored."""
