"""Kinds of schemas: how they are parsed, written, and compared."""
