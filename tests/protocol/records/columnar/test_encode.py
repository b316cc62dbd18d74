"""Encoding columns makes byte for byte the batches that BatchBuilder makes of the same records.

The schema that Spark compares by name, order, type and nullability.
"""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.records.batch import check_batch, parse_header
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.columnar import decode, encode, schema
from triolog.protocol.records.columnar.encode import Encoded, Encoding, encode_batches
from triolog.protocol.records.columnar.schema import COLUMNS, arrow_schema
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import CompressionType, Record

from tests.support.record_batches import RecordTuple, compression_types, record_lists

MIXED: list[RecordTuple] = [
    (1_000, b"k" * 70, b"v" * 9000, ()),
    (900, None, None, (("h", None), ("name", b"value"))),
    (-1, b"", b"", ()),
    (1_000 + (1 << 40), None, b"x", (("", b""),)),
]


def rows_of(records: list[RecordTuple]) -> pa.RecordBatch:
    timestamps, keys, values, headers = zip(*records, strict=True) if records else ((), (), (), ())
    cells = [[{"key": name, "value": value} for name, value in each] for each in headers]
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(timestamps, pa.int64()),
        "headers": pa.array(cells, schema.arrow_type("headers")),
    }
    return pa.record_batch(columns)


def records_in(encoded: list[Encoded]) -> list[Record]:
    return [record._replace(offset=0) for each in encoded for record in iter_records(each.data)]


def values_of(*values: bytes | None, **others: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary()), **others})


@given(record_lists(min_size=1), compression_types(), st.integers(1, 8))
@example(MIXED, CompressionType.NONE, 2)
@example([(5 + row % 3, b"k", b"v", ()) for row in range(300)], CompressionType.NONE, 200)
def test_batches_equal_those_of_the_builder(
    records: list[RecordTuple], compression_type: CompressionType, batch_records: int
) -> None:
    encoded = encode_batches(
        rows_of(records), Encoding(compression=compression_type, batch_records=batch_records, batch_bytes=1 << 30)
    )
    pieces = [records[start : start + batch_records] for start in range(0, len(records), batch_records)]
    assert encoded == [Encoded(build_batch(piece, compression_type=compression_type), len(piece)) for piece in pieces]
    for each in encoded:
        check_batch(memoryview(each.data), parse_header(each.data))


@given(record_lists(min_size=1), st.integers(1, 30_000), st.integers(1, 9))
def test_batches_keep_their_limits_and_all_records(records: list[RecordTuple], batch_bytes: int, batch_records: int) -> None:
    encoded = encode_batches(rows_of(records), Encoding(batch_bytes=batch_bytes, batch_records=batch_records))
    assert all(each.records == 1 or len(each.data) <= batch_bytes for each in encoded)
    assert all(1 <= each.records <= batch_records for each in encoded)
    assert all(each.records == parse_header(each.data).records_count for each in encoded)
    assert records_in(encoded) == records_in([Encoded(build_batch(records), len(records))])


@given(record_lists(max_size=8), st.data())
def test_a_slice_with_nulls_over_leftover_bytes_is_encoded_as_it_reads(records: list[RecordTuple], data: st.DataObject) -> None:
    """A null's place in the buffers may have any length."""
    start = data.draw(st.integers(0, len(records)))
    stop = data.draw(st.integers(start, len(records)))
    nulls = [record[2] is None for record in records]
    filled = pa.array([b"left over" if record[2] is None else record[2] for record in records], pa.binary())
    masked = pa.array([not null for null in nulls]).buffers()[1] if records else None
    values = pa.Array.from_buffers(pa.binary(), len(records), [masked, *filled.buffers()[1:]])
    rows = rows_of(records).set_column(1, "value", values).slice(start, stop - start)
    assert records_in(encode_batches(rows, Encoding())) == records_in(
        [Encoded(build_batch(records[start:stop]), 1)] if stop > start else []
    )


@given(record_lists(min_size=1, max_size=8).filter(lambda records: all(record[0] < 2**63 // 1000 for record in records)))
def test_what_is_decoded_can_be_encoded_to_the_same_bytes(records: list[RecordTuple]) -> None:
    batch = build_batch(records)
    decoded = decode.decode_batches(batch, decode.Wanted("t", 0, schema.COLUMNS))
    written = decoded.select(["key", "value", "timestamp", "headers"])
    assert encode_batches(written, Encoding(batch_bytes=1 << 30)) == [Encoded(batch, len(records))]


def test_a_value_alone_has_no_key_no_headers_and_the_default_timestamp() -> None:
    [encoded] = encode_batches(values_of(b"a", None), Encoding(default_timestamp=77))
    assert encoded == Encoded(build_batch([(77, None, b"a", ()), (77, None, None, ())]), 2)
    [encoded] = encode_batches(values_of(b"a", timestamp=pa.array([None], pa.int64())), Encoding())
    assert encoded == Encoded(build_batch([(-1, None, b"a", ())]), 1)


def test_a_record_above_the_limit_has_a_batch_of_its_own() -> None:
    rows = values_of(b"a", b"b" * 5000, b"c", b"d", b"e" * 5000, b"f" * 5000)
    assert [each.records for each in encode_batches(rows, Encoding(batch_bytes=2000))] == [1, 1, 2, 1, 1]


def test_runs_of_batches_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(MIXED * 20)
    encoding = Encoding(batch_records=3)
    whole = encode_batches(rows, encoding)
    monkeypatch.setattr(encode, "RUN_BYTES", 20_000)
    assert encode_batches(rows, encoding) == whole
    assert sum(each.records for each in whole) == 80


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary(2), pa.null()], ids=str)
def test_text_and_other_binary_types_are_taken(type_: pa.DataType) -> None:
    cells = [None, None] if pa.types.is_null(type_) else ["ab", None]
    column = pa.array(cells, type_)
    rows = pa.record_batch({"value": column, "key": column})
    cell = None if cells[0] is None else b"ab"
    assert [(record.key, record.value) for record in records_in(encode_batches(rows, Encoding()))] == [
        (cell, cell),
        (None, None),
    ]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_timestamps_of_any_unit_are_rounded_down_to_milliseconds(unit: str, zone: str | None) -> None:
    moment = datetime.datetime(2026, 2, 3, 4, 5, 6, 987_999 if unit in ("us", "ns") else 987_000 if unit == "ms" else 0)
    column = pa.array([moment.replace(tzinfo=datetime.UTC if zone else None), None], pa.timestamp(unit, zone))
    [first, second] = records_in(encode_batches(values_of(b"a", b"b", timestamp=column), Encoding(default_timestamp=5)))
    assert first.timestamp == int(moment.replace(tzinfo=datetime.UTC, microsecond=0).timestamp()) * 1000 + (
        0 if unit == "s" else 987
    )
    assert second.timestamp == 5


def test_null_headers_are_none_and_nulls_between_lists_shift_nothing() -> None:
    cells: list[Any] = [None, [{"key": "a", "value": None}], [], None, [{"key": "b", "value": b""}, {"key": "", "value": b"1"}]]
    rows = values_of(*[b"v"] * 5, headers=pa.array(cells, schema.arrow_type("headers")))
    assert [record.headers for record in records_in(encode_batches(rows, Encoding(batch_records=2)))] == [
        (),
        (("a", None),),
        (),
        (),
        (("b", b""), ("", b"1")),
    ]


HEADERS = schema.arrow_type("headers")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": pa.array([b"k"])}, "columns key: expected value"),
        ({"value": pa.array([b"v"]), "partition": pa.array([1])}, "columns value, partition: expected value, and any of key"),
        ({"value": pa.array([1])}, "column value has type int64, expected binary or string"),
        ({"value": pa.array([b"v"]), "key": pa.array([True])}, "column key has type bool"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array([1], pa.int32())}, "column timestamp has type int32"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array([-2])}, "row 0: timestamp -2 ms is neither -1 nor at least 0"),
        ({"value": pa.array([b"v"]), "headers": pa.array([["x"]])}, "column headers has type list<"),
        ({"value": pa.array([b"v"]), "headers": pa.array([[{"key": None, "value": b""}]], HEADERS)}, "row 0: a header key"),
        ({"value": pa.array([b"v"]), "headers": pa.array([[None]], HEADERS)}, "row 0: a header key is null"),
        (
            {"value": pa.array([b"v"] * 3), "headers": pa.array([[{"key": "a"}], [], [{"key": "b"}, {"key": None}]], HEADERS)},
            "row 2: a header key is null",
        ),
        (
            {"value": pa.array([b"v", b"w"]), "timestamp": pa.array([-1, 2**63 - 1])},
            "more than 64 bits after the base timestamp -1",
        ),
    ],
)
def test_what_cannot_be_a_record_is_refused(columns: dict[str, pa.Array], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_batches(pa.record_batch(columns), Encoding())


def test_what_no_batch_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "INT32_MAX", 10_000)
    monkeypatch.setattr(encode, "INT32_MAX", 10_000)
    with pytest.raises(ValueError, match=r"the batch that begins at row 1 could have 10\d\d\d bytes, at most 10000"):
        encode_batches(values_of(b"v", bytes(10_000)), Encoding(batch_records=1))
    headers = pa.array([[{"key": "h", "value": bytes(10_000)}]], HEADERS)
    with pytest.raises(ValueError, match="Encode fewer rows at once"):
        encode_batches(values_of(b"v", headers=headers), Encoding())


def test_a_default_timestamp_before_the_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="default timestamp -2"):
        encode_batches(values_of(b"v"), Encoding(default_timestamp=-2))


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
    with pytest.raises(ValueError, match="each of key, value, topic"):
        arrow_schema(columns)
