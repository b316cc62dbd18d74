"""What a test asks a broker to do wrong, and what a broker was asked: rules, counters, a ring of requests. No sockets, no
clock of its own, no trio."""
