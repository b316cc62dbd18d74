"""Faults that a test injects, and the requests that a broker received: rules, counters, a ring of requests. No sockets, no
clock of its own, no trio."""
