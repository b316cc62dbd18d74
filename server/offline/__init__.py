"""Stopped log directories, and copies of running ones: verify, scrub, repair, compact, back up, export. No trio, no sockets."""
