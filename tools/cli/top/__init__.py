"""`triolog top`."""
