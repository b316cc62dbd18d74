"""The `triolog` command."""
