"""`triolog groups`."""
