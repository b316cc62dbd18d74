"""Jobs over whole logs as Spark tasks: export, load, verify, reindex, compact, profile. Each is a function and a command."""
