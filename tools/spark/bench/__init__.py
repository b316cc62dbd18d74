"""`triolog spark bench`."""
