"""Segments: a `.log` with its indexes, what readers see of it, and the chain of them."""
