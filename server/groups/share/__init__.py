"""Share groups (KIP-932): their members and the partitions that each reads. What becomes of records is in `server.sharing`."""
