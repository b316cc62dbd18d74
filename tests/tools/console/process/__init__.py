"""The console as a process."""
