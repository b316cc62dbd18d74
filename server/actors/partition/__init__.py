"""The actor of one partition, its mailbox, its flushes, and who waits for it."""
