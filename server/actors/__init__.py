"""Who owns what, and when: partition actors, disk threads, long polls, the log manager."""
