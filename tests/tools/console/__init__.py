"""The console over HTTP, as a browser sees it."""
