"""Whole valid requests of all APIs and calls, drawn by chance, sent to a broker with something of everything in it."""
