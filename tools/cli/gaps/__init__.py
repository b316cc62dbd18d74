"""`triolog gaps`."""
