"""Lets Spark find the data source `triolog_segments` by itself: Spark imports every top-level module named `pyspark_*`.

Installed as the top-level package of this name. An error here would keep Spark from finding any other source, so nothing is
imported but the class.
"""

from triolog.tools.spark.segments.segments_source import TriologSegments as DefaultSource

__all__ = ["DefaultSource"]
