"""Segment files of a log directory, read without a server: what is in them, where it lies, and its records as Arrow batches."""
