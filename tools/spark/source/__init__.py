"""The data source `triolog`: reading from a server."""
