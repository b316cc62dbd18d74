"""Sources of records: a running server, or the directory of a stopped one."""
