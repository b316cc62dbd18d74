"""The log on disk: segments, indexes, lookups, recovery. No trio, no threads, no wire messages."""
