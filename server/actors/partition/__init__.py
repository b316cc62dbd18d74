"""The actor of one partition, its mailbox, and its flushes."""
