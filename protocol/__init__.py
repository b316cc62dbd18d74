"""Bytes to values and back: records, the native protocol. No sockets, no clock, no trio."""
