"""Classic groups, whose leader makes the assignment: members, generations and rebalances (KIP-62, KIP-345, KIP-394)."""
