"""The settings of links: reads and checks tables of a TOML file, or options."""
