"""Disk operations: threads and descriptors."""
