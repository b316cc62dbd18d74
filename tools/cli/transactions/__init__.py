"""`triolog transactions`."""
