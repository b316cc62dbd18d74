"""Copies topics from another server with the same offsets, and promotes the copies."""
