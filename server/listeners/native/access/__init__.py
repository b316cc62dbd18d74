"""The permissions of clients of the native protocol: logins, and the one guard of all calls."""
