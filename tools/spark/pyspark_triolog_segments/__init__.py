"""Where Spark finds the data source `triolog_segments` by itself. Installed as the top-level package of this name."""
