"""Building batches: what is written, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidRecordError
from triolog.protocol.limits import INT32_MAX
from triolog.protocol.records.batch import check_batch, parse_header, with_producer
from triolog.protocol.records.builder import BatchBuilder, build_batch
from triolog.protocol.records.record import iter_records
from triolog.protocol.records.walk import walk_records
from triolog.protocol.types import CompressionType, Record, TimestampType

from tests.support.record_batches import RecordTuple, compression_types, record_lists


@given(record_lists(), st.integers(0, 2**62), compression_types())
def test_what_is_built_is_read_back(records: list[RecordTuple], base_offset: int, compression_type: CompressionType) -> None:
    batch = build_batch(records, base_offset=base_offset, compression_type=compression_type)
    if not records:
        assert batch == b""
        return
    header = parse_header(batch)
    check_batch(memoryview(batch), header)
    expected = [Record(base_offset + index, *record) for index, record in enumerate(records)]
    assert list(iter_records(memoryview(batch))) == expected
    assert header.compression_type is compression_type
    assert header.base_timestamp == records[0][0]
    assert header.max_timestamp == max(record[0] for record in records)
    assert (header.records_count, header.last_offset) == (len(records), base_offset + len(records) - 1)


@given(record_lists(min_size=1), st.integers(0, 1000))
def test_the_estimated_size_is_the_size_without_compression(records: list[RecordTuple], base_offset: int) -> None:
    builder = BatchBuilder(base_offset=base_offset)
    offsets = [builder.append(*record) for record in records]
    assert offsets == list(range(base_offset, base_offset + len(records)))
    assert builder.records_count == len(records)
    batch = builder.build()
    assert len(batch) == builder.estimated_size_bytes
    assert builder.build() == batch


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_may_be_appended_and_changed_afterwards(make: Any) -> None:
    value = bytearray(b"value")
    builder = BatchBuilder()
    builder.append(1, make(b"key"), value, (("h", make(b"hv")),))
    value[:] = b"other"
    (record,) = iter_records(builder.build())
    assert record == Record(0, 1, b"key", b"value", (("h", b"hv"),))


def test_nothing_appended_builds_nothing() -> None:
    """Kafka: MemoryRecordsBuilderTest.testWriteEmptyRecordSet."""
    assert BatchBuilder().build() == b""
    assert BatchBuilder(is_transactional=True).build() == b""


@pytest.mark.parametrize(
    ("stamps", "options", "base_and_most", "reported"),
    [
        ((0, 2, 1), {}, (0, 2), [0, 2, 1]),
        ((3, 9, 5), {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": 7}, (3, 7), [7, 7, 7]),
        ((50, 100, 150), {"delete_horizon_ms": 100}, (100, 150), [50, 100, 150]),
    ],
    ids=["create time", "log append time", "delete horizon"],
)
def test_timestamps_of_header_and_records(
    stamps: tuple[int, ...], options: dict[str, Any], base_and_most: tuple[int, int], reported: list[int]
) -> None:
    """Kafka: MemoryRecordsBuilderTest.buildUsingCreateTime, MemoryRecordsBuilderTest.buildUsingLogAppendTime,
    MemoryRecordsBuilderTest.testRecordTimestampsWithDeleteHorizon."""
    batch = build_batch([(timestamp, b"k", None, ()) for timestamp in stamps], **options)
    header = parse_header(batch)
    assert (header.base_timestamp, header.max_timestamp, header.last_offset) == (*base_and_most, 2)
    assert header.has_delete_horizon == ("delete_horizon_ms" in options)
    assert [record.timestamp for record in iter_records(batch)] == reported


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=10, unique=True).map(sorted), st.integers(0, 9))
def test_explicit_offsets_keep_their_gaps(offsets: list[int], removed_behind: int) -> None:
    builder = BatchBuilder(base_offset=100)
    for offset in offsets:
        builder.append_at(100 + offset, 1, b"k", b"v")
    last_offset = 100 + offsets[-1] + removed_behind
    batch = builder.build(last_offset=last_offset)
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset) == (100, last_offset)
    assert [record.offset - 100 for record in iter_records(batch)] == offsets
    walk = walk_records(batch, header, allow_gaps=True)
    assert walk.records_count == len(offsets)
    if len(offsets) == offsets[-1] + removed_behind + 1:
        assert walk_records(batch, header) == walk
    else:
        with pytest.raises(InvalidRecordError):
            walk_records(batch, header)


def test_what_does_not_follow_an_explicit_offset_is_refused() -> None:
    builder = BatchBuilder(base_offset=5)
    builder.append_at(9, 1, None, None)
    for offset in (4, 9, 5 + INT32_MAX + 1):
        with pytest.raises(ValueError, match=f"offset {offset} does not follow"):
            builder.append_at(offset, 1, None, None)
    assert builder.records_count == 1
    with pytest.raises(ValueError, match="last offset 8 lies below"):
        builder.build(last_offset=8)
    assert builder.append(1, None, None) == 10


def test_a_timestamp_before_the_epoch_or_that_no_delta_reaches_is_refused() -> None:
    builder = BatchBuilder()
    for timestamp in (-2, -(2**40), 2**63):
        with pytest.raises(ValueError, match=f"timestamp {timestamp}"):
            builder.append(timestamp, None, None)
    with pytest.raises(ValueError, match="delete horizon -1"):
        BatchBuilder(delete_horizon_ms=-1)
    builder.append(-1, None, None)
    with pytest.raises(ValueError, match="64 bits after the base timestamp -1"):
        builder.append(2**63 - 1, None, None)
    assert [record.timestamp for record in iter_records(builder.build())] == [-1]


def test_a_refused_first_record_leaves_no_base_timestamp() -> None:
    builder = BatchBuilder()
    unencodable: Any = "a string"
    with pytest.raises(TypeError):
        builder.append(1, b"k", unencodable)
    builder.append(2, b"k", b"v")
    assert parse_header(builder.build()).base_timestamp == 2


def test_a_null_header_key_is_refused() -> None:
    builder = BatchBuilder()
    null_key: Any = None
    with pytest.raises(ValueError, match="header key is null"):
        builder.append(1, None, None, ((null_key, b"v"),))
    assert builder.build() == b""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"is_transactional": True}, "needs a producer id"),
        ({"producer_id": 5, "base_sequence": 0}, "has no epoch"),
        ({"producer_id": 5, "producer_epoch": 0}, "base sequence -1"),
    ],
)
def test_a_producer_that_is_only_half_there_is_refused(options: dict[str, Any], message: str) -> None:
    """Kafka: MemoryRecordsBuilderTest.testWriteIdempotentWithInvalidEpoch, testWriteIdempotentWithInvalidBaseSequence."""
    with pytest.raises(ValueError, match=message):
        build_batch([(1, None, None, ())], **options)


def test_a_control_batch_takes_control_records_and_needs_no_sequence() -> None:
    builder = BatchBuilder(is_control=True, is_transactional=True, producer_id=5, producer_epoch=0)
    with pytest.raises(ValueError, match="control record's key"):
        builder.append(1, b"abc", None)
    with pytest.raises(ValueError, match="control record's key"):
        builder.append(1, None, None)
    builder.append(1, bytes(4), bytes(6))
    header = parse_header(builder.build())
    assert (header.is_control, header.base_sequence, header.size_bytes) == (True, -1, 78)


@pytest.mark.parametrize(("records_count", "size"), [(1, 200), (3, 70_000)])
@pytest.mark.parametrize("compression_type", CompressionType)
def test_the_codec_named_is_the_codec_used(compression_type: CompressionType, records_count: int, size: int) -> None:
    batch = build_batch([(1, None, b"x" * size, ())] * records_count, compression_type=compression_type)
    assert (len(batch) < size) == (compression_type != CompressionType.NONE)
    start = {
        CompressionType.NONE: b"",
        CompressionType.GZIP: b"\x1f\x8b\x08",
        CompressionType.SNAPPY: b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01",
        CompressionType.LZ4: bytes.fromhex("04224d18604082"),
        CompressionType.ZSTD: bytes.fromhex("28b52ffd"),
    }[compression_type]
    assert batch[61:].startswith(start)


@given(
    records=record_lists(min_size=1, max_size=5),
    compression_type=compression_types(),
    producer=st.tuples(st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, INT32_MAX)),
    is_transactional=st.booleans(),
)
def test_a_producer_named_late_or_in_place_of_another_is_as_one_named_early(
    records: list[RecordTuple], compression_type: CompressionType, producer: tuple[int, int, int], is_transactional: bool
) -> None:
    options: dict[str, Any] = {"compression_type": compression_type, "is_transactional": is_transactional}
    named = dict(zip(("producer_id", "producer_epoch", "base_sequence"), producer, strict=True))
    builder = BatchBuilder(compression_type=compression_type)
    for record in records:
        builder.append(*record)
    builder.set_producer(*producer, is_transactional=is_transactional)
    expected = build_batch(records, **options, **named)
    assert builder.build() == expected
    other = build_batch(records, **options, producer_id=1, producer_epoch=2, base_sequence=3)
    changed = with_producer(other, *producer)
    check_batch(memoryview(changed), parse_header(changed))
    assert changed == expected
