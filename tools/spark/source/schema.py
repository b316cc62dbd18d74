"""The columns of a read as Spark's types; as Arrow's they are `protocol.records.columnar.schema`.

A reader gives exactly the columns that it is asked for: Spark's Python sources have no column pruning of their own, so
`.schema("offset long, timestamp timestamp")` or the option `columns` is how a query says that it wants no values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ....protocol.records.columnar.schema import COLUMNS
from ..option_table.option import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

DEFAULT_COLUMNS: Final = COLUMNS[:-1]
"""Without `includeHeaders` there are no headers, as with Kafka's source."""
DDL: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}

__all__ = ["COLUMNS", "DDL", "DEFAULT_COLUMNS", "SchemaError", "columns_of", "null_headers", "spark_schema"]


class SchemaError(OptionError):
    """A schema that was asked for and cannot be given."""


def spark_schema(columns: Sequence[str]) -> StructType:
    """The schema of these columns, in their order; every one may be null."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types = {
        "key": BinaryType(),
        "value": BinaryType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        "timestampType": IntegerType(),
        "headers": ArrayType(header),
    }
    return StructType([StructField(name, types[name]) for name in columns])


def null_headers(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with a null for headers where a record has none, as Spark's Kafka source has it."""
    import pyarrow.compute as pc

    if "headers" not in rows.schema.names:
        return rows
    index = rows.schema.names.index("headers")
    headers = rows.column(index)
    is_empty = pc.equal(pc.list_value_length(headers), 0)
    return rows.set_column(index, rows.schema.field(index), pc.if_else(is_empty, None, headers))


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema asks for, in its order. SchemaError names the column that is not as it has to be."""
    for field in schema.fields:
        if field.name not in DDL:
            raise SchemaError(
                f"the schema has a column {field.name}. A read returns {', '.join(COLUMNS)}, with exactly this case"
            )
        expected = spark_schema([field.name]).fields[0]
        if field.dataType != expected.dataType:
            raise SchemaError(
                f"the schema has column {field.name} as {field.dataType.simpleString()}, but it is {DDL[field.name]}. "
                "Read it as that and cast it"
            )
        if not field.nullable:
            raise SchemaError(
                f"the schema has column {field.name} as NOT NULL, but every column may be null. Leave out NOT NULL"
            )
    names = tuple(field.name for field in schema.fields)
    if not names:
        raise SchemaError("the schema has no columns, and Spark cannot count rows without one. Name one, as in 'offset long'")
    if len(set(names)) != len(names):
        raise SchemaError(f"the schema has a column twice: {', '.join(names)}")
    return names
