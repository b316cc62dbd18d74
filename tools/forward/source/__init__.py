"""Where records come from: a running server, or the directory of one that is stopped."""
