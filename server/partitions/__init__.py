"""The running side of one partition: its actor, its mailbox, its flushes, and the disk operations that they wait for."""
