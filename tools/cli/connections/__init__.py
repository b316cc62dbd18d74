"""`triolog connections`."""
