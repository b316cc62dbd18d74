"""Topics as tables of SQL: DuckDB asks, `triolog.tools.arrow` reads what a question needs. Needs the extra `sql`."""
