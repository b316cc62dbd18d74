"""Lets Spark find the data source `triolog` by itself: Spark imports every top-level module named `pyspark_*`.

Installed as the top-level package `pyspark_triolog`. An error here would keep Spark from finding any other source, so
nothing is imported but the class.
"""

from triolog.tools.spark.source.source import TriologDataSource as DefaultSource

__all__ = ["DefaultSource"]
