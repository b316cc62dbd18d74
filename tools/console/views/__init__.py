"""The views of the console, a module each: its routes and their handlers."""
