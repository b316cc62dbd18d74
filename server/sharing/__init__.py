"""Share-partitions (KIP-932): one partition as one share group reads it, the log of its state, and share sessions. The rules
are in `state`; who is a member is in `server.groups.share`."""
