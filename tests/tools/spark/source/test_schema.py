from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType
from triolog.protocol.records.columnar.schema import COLUMNS, arrow_schema
from triolog.tools.spark.source.schema import DDL, SchemaError, columns_of, spark_schema


def test_sparks_schema_is_arrows_and_the_documented_one_or_some_of_its_columns() -> None:
    assert to_arrow_schema(spark_schema(COLUMNS), timezone="UTC").equals(arrow_schema(COLUMNS))
    assert {field.name: field.dataType.simpleString() for field in spark_schema(COLUMNS).fields} == DDL
    assert columns_of(spark_schema(["offset", "key"])) == ("offset", "key")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("ofset", LongType()), "the schema has a column ofset; a read gives key, value"),
        (StructField("Offset", LongType()), "names with this case"),
        (StructField("offset", StringType()), "column offset as string, and it is bigint"),
        (StructField("offset", LongType(), nullable=False), "column offset as NOT NULL"),
        (StructField("headers", ArrayType(StringType())), "column headers as array<string>"),
    ],
)
def test_a_column_that_cannot_be_given_is_named(field: StructField, message: str) -> None:
    with pytest.raises(SchemaError, match=message.replace("<", ".").replace(">", ".")):
        columns_of(StructType([field]))


def test_a_schema_without_columns_or_with_one_twice_is_refused() -> None:
    with pytest.raises(SchemaError, match="a column twice"):
        columns_of(spark_schema(["offset", "offset"]))
    # An Arrow batch without columns has no number of rows
    with pytest.raises(SchemaError, match="no columns"):
        columns_of(StructType([]))
