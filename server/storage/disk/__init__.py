"""The seam to the system: operations as values, the file system, names of files, small text files."""
