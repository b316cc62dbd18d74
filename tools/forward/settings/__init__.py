"""What links are told to do: tables of a TOML file or options, read and checked."""
