"""Writing to a server from Spark."""
