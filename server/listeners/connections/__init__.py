"""What all connections have in common: sockets, TLS, limits, memory, who is there and who has left."""
