"""Interfaces to the operating system: the time and its jumps, the limit of open files, syncs of a device."""
