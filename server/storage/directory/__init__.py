"""Log directories: the lock, whose topics are there, partitions as folders, and how much room they take."""
