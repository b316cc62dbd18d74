"""The figures of a server: `table` says what each is and how it is read, `prometheus` writes them as text."""
