"""Share-partitions (KIP-932): one partition as one share group reads it, the log of its state, and share sessions. The rules
are in `state`, the members in `server.groups.share`."""
