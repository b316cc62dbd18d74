"""What the operating system tells and does: the time and its jumps, how many files may be open, forcing a device."""
