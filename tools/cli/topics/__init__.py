"""`triolog topics`."""
