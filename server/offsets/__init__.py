"""Committed offsets, and the topic `__consumer_offsets` that stores them."""
