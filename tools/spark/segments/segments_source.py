"""The data source `triolog_segments`: `spark.read.format("triolog_segments").load(directory)`. Batch reads only.

Spark finds it through `pyspark_triolog_segments`. Imports are as late as those of `source.source`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

from ..carried import Carried
from ..one_line import one_line

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class TriologSegments(Carried, DataSource):
    """Segment files as a table."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format(...)` accepts."""
        return "triolog_segments"

    @one_line()
    def schema(self) -> StructType:
        """The columns that the options ask for. OptionError for options that no read can have."""
        from ..source.schema import spark_schema
        from .segments_options import SegmentOptions

        return spark_schema(SegmentOptions.from_options(self.options).read.columns)

    @one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the schema's columns."""
        from ..source.schema import columns_of
        from .segments_options import SegmentOptions
        from .segments_reader import SegmentsReader

        return SegmentsReader(SegmentOptions.from_options(self.options), columns_of(schema))
