"""The client of the native protocol, for trio, asyncio and blocking programs. Nothing of the server is imported."""
