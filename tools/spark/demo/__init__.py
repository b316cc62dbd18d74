"""The Spark demo: a year of flights through a streaming job that is killed twice, and nothing missing or doubled at its end."""
