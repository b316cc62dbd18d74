"""One partition while it runs: its actor, its mailbox, its flushes, and the disk operations that they wait for."""
