"""Committed offsets and lag of groups, and the effect of a reset: for the command line and the console."""
