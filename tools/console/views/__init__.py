"""One module per view: what it answers, and where."""
