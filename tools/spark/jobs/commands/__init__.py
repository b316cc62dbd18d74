"""The commands `triolog spark JOB`."""
