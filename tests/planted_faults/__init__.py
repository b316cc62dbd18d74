"""Faults that are planted one at a time, to see that the suite notices: `python -m tests.planted_faults [NAME...]`.

The TOML files list them, `planting` plants them in a copy of the tree; the tree itself is never changed.
"""
