"""Packages that Spark looks for by their names: they are installed at the top level, beside `triolog`."""
