"""The log's surroundings: the flash below it, the links that forward it, the control port of a server for tests."""
