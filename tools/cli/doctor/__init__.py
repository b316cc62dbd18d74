"""`triolog doctor`: problems of a directory or a server, the next steps, and one file for a maintainer."""
