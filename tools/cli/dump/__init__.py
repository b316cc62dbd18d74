"""`triolog dump`, by kind of file."""
