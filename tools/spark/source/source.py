"""The data source `triolog`: `spark.read.format("triolog")` and its relatives. What it does is in the readers and writers.

Spark finds it through `pyspark_triolog`. Options are checked in `schema()`, which `load()` calls, as well as in the readers:
with a schema of the user's Spark does not call `schema()`, and `schema()` does not learn whether the read is a stream.

Spark calls the methods in several processes, each of which imports this module anew. So a method imports what it needs.
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

from ..carried import Carried
from ..one_line import one_line

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class TriologDataSource(Carried, DataSource):
    """Topics of a triolog server as tables and streams."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format(...)` accepts."""
        return "triolog"

    @one_line()
    def schema(self) -> StructType:
        """The columns that the options ask for. OptionError for options that no read can have."""
        from .options import ReadOptions
        from .schema import spark_schema

        return spark_schema(ReadOptions.from_options(self.options).columns)

    @one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of the schema's columns."""
        from .options import ReadOptions
        from .reader import BatchReader
        from .schema import columns_of

        return BatchReader(ReadOptions.from_options(self.options, streaming=False), columns_of(schema))

    @one_line()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream reader of the schema's columns. For wrong options it is one that raises OptionError at its first call:
        Spark 4.3 hides an error of this function behind an UnboundLocalError of its own."""
        from ..option_table.option import OptionError
        from .options import ReadOptions
        from .schema import columns_of
        from .stream_reader import RefusedStreamReader, StreamReader

        try:
            return StreamReader(ReadOptions.from_options(self.options, streaming=True), columns_of(schema))
        except OptionError as exc:
            return RefusedStreamReader(exc)

    @one_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch writer for rows of this schema."""
        from ..sink import sink

        return sink.batch_writer(self.options, schema, overwrite)

    @one_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming writer for rows of this schema."""
        from ..sink import sink

        return sink.stream_writer(self.options, schema, overwrite)
