"""Procedures of more than one call, as generators: they yield requests and receive responses."""
