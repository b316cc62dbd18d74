"""Doors to the broker: sockets and the sessions that speak the native protocol on them."""
