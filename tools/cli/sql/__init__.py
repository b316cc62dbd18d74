"""`triolog sql`: questions in SQL over topics."""
