"""`triolog export`: records of log directories, printed or as files by day."""
