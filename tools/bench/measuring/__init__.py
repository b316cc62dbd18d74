"""Shared parts of all benchmark rows: the machine, a server, samples, a report."""
