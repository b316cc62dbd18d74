"""The demo: a year of real flights through a socket, a SIGKILL, and out again by time."""
