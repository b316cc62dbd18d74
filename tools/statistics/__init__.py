"""Turns the counters of a server into rates and moments."""
