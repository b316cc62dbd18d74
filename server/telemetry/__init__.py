"""Metrics that clients send (KIP-714): who may send what, and what is kept of it; no trio, no clock, no files."""
