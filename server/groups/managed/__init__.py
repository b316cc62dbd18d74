"""What groups whose assignments the server makes have in common, consumer groups and share groups."""
