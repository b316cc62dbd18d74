"""The schema that Spark compares by name, order, type and nullability."""

from __future__ import annotations

import pyarrow as pa
import pytest
from triolog.protocol.records.columnar.schema import COLUMNS, arrow_schema


def test_the_schema_is_spark_s_kafka_source_s_with_headers() -> None:
    assert arrow_schema(COLUMNS) == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
        ]
    )
    assert all(field.nullable for field in arrow_schema(COLUMNS))


def test_columns_come_in_the_order_that_is_asked_for() -> None:
    assert arrow_schema(("offset", "key")).names == ["offset", "key"]
    assert arrow_schema(()).names == []


@pytest.mark.parametrize("columns", [("offset", "size"), ("key", "key"), ("Key",)])
def test_unknown_and_repeated_columns_are_refused(columns: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="each is to be one of key, value, topic"):
        arrow_schema(columns)
