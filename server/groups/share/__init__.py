"""Share groups (KIP-932): who is a member, which partitions each reads, and for which partitions there is a share state."""
