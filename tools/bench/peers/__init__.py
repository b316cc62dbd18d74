"""Other servers that rows are compared with."""
