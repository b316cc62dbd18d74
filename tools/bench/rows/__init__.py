"""The rows of the benchmark."""
