"""The console as a process: alone, or started by a server."""
