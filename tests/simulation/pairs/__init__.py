"""Worlds of two servers, of which one mirrors the other; promotions in the middle, after which the old server returns."""
