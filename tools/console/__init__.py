"""`triolog console`: what a server has and does, in a browser."""
