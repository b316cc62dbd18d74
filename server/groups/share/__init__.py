"""Share groups (KIP-932): who is a member and which partitions each reads, and what becomes of the records that members
are given. No trio, no clock, no disk."""
