"""Contents of records in a form for display; pages of records, searches through them, and their live tail."""
