"""Who holds what of the logs, and the bounds of their size."""
