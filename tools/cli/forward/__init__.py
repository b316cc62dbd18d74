"""`triolog forward`: what it is told, and how it is asked."""
