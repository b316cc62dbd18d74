"""`triolog quotas`."""
