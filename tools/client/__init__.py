"""Clients of the native protocol: async (trio) and blocking. Nothing of the server is imported."""
