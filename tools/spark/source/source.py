"""The data source `triolog`: `spark.read.format("triolog")` and its relatives. What it does is in the readers and writers.

Spark finds it through `pyspark_triolog`. Options are checked in `schema()` as well as in the readers: with a schema of the
user's Spark does not call `schema()`, and an error in `streamReader()` is hidden behind one of Spark's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from .options import ReadOptions
from .schema import columns_of, spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class TriologDataSource(DataSource):
    """Topics of a triolog server as tables and streams."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format(...)` accepts."""
        return "triolog"

    def schema(self) -> StructType:
        """The columns that the options ask for. OptionError for options that no read can have."""
        return spark_schema(ReadOptions.from_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of the schema's columns."""
        from .reader import BatchReader

        return BatchReader(ReadOptions.from_options(self.options, streaming=False), columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream reader of the schema's columns."""
        from .stream_reader import StreamReader

        return StreamReader(ReadOptions.from_options(self.options, streaming=True), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch writer for rows of this schema."""
        from ..sink import sink

        return sink.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming writer for rows of this schema."""
        from ..sink import sink

        return sink.stream_writer(self.options, schema, overwrite)
