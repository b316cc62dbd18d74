"""Reading a log by offset and by time, from snapshots."""
