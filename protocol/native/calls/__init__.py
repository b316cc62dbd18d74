"""The native calls: a module for each group of them, with requests and answers as values."""
