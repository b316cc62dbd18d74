"""Opening a log: what is loaded, scanned, rebuilt, put aside, or waits for space."""
