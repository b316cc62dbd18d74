"""Ownership and its times: partition actors, disk threads, long polls, the log manager."""
