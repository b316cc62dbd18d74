"""Decides when and how much a link may send. No threads, no sockets; time is an argument."""
