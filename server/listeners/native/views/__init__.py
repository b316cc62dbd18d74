"""The handlers of the calls that show the state of the server."""
