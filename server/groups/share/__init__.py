"""Share groups (KIP-932): their members and the partitions that each reads. The states of records are in `server.sharing`."""
