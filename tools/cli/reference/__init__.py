"""Generates reference material from the code: tables of keys, manual pages, completion."""
