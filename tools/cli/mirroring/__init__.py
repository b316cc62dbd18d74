"""`triolog mirror`, `promote` and `demote`."""
