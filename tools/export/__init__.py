"""Records of log directories as files by topic and day, in pieces, what `triolog export --target` and Spark's job write."""
