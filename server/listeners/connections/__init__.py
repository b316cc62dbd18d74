"""The common parts of all connections: sockets, TLS, limits, memory, arrivals and departures of peers."""
