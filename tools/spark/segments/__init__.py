"""The data source `triolog_segments`: reads of segment files without a server."""
