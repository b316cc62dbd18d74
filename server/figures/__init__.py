"""The figures of a server: `table` says what each is and how it is read, `as_map` gives them to native clients."""
