"""Staged record batches and their commits."""
