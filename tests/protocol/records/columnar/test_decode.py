"""Decoding into columns tells what reading record by record tells, of any bytes."""

from __future__ import annotations

import datetime
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.errors import CorruptRecordError, InvalidRecordError, RecordTooLargeError, RequestError
from triolog.protocol.limits import INT64_MAX
from triolog.protocol.records.batch import check_batch, empty_batch_header, end_txn_marker, iter_batches
from triolog.protocol.records.builder import BatchBuilder, build_batch
from triolog.protocol.records.columnar import decode, group_columns, record_starts, schema
from triolog.protocol.records.columnar.decode import Wanted, decode_batches, next_offset
from triolog.protocol.records.compression import compress
from triolog.protocol.records.record import CommittedFilter, iter_records
from triolog.protocol.records.varint import encode_varint
from triolog.protocol.types import CompressionType, TimestampType

from tests.support.record_batches import RecordTuple, compression_types, damaged, patched, record_lists, with_records

METADATA = ("topic", "partition", "offset", "timestamp", "timestampType")
UNTIMED = tuple(name for name in schema.COLUMNS if name != "timestamp")
MIXED: list[RecordTuple] = [
    (1_000, b"k" * 70, b"v" * 9000, ()),
    (900, None, None, (("h", None), ("name", b"value"))),
    (-1, b"", b"", ()),
    (1_000 + (1 << 40), None, b"x", (("", b""),)),
]


def wanted(columns: Iterable[str] = schema.COLUMNS, **options: Any) -> Wanted:
    return Wanted("t", 3, tuple(columns), **options)


def cell(record: Any, column: str, is_append_time: bool) -> object:
    match column:
        case "topic":
            return "t"
        case "partition":
            return 3
        case "timestampType":
            return int(is_append_time)
        case "timestamp":
            return record.timestamp * 1000
        case "headers":
            return [{"key": key, "value": value} for key, value in record.headers]
    return getattr(record, column)


def scalar_rows(data: bytes, asked: Wanted, aborted: Iterable[tuple[int, int]] | None = None) -> list[tuple[object, ...]]:
    """What the scalar codec reads, in the same order and with the same batches left out."""
    committed = None if aborted is None else CommittedFilter(aborted)
    rows = []
    for header, batch in iter_batches(data):
        is_inside = header.last_offset >= asked.low and header.base_offset < asked.high
        if asked.check_crcs and (is_inside or header.is_control):
            check_batch(batch, header)
        if (committed is not None and committed.leaves_out(header, batch)) or header.is_control or not is_inside:
            continue
        is_append_time = header.timestamp_type == TimestampType.LOG_APPEND_TIME
        records = [record for record in iter_records(batch, header) if asked.low <= record.offset < asked.high]
        for record in records:
            if "timestamp" in asked.columns and abs(record.timestamp) > group_columns.MAX_TIMESTAMP_MS:
                raise group_columns.unrepresentable("t", 3, record.offset, record.timestamp)
        rows += [tuple(cell(record, column, is_append_time) for column in asked.columns) for record in records]
    return rows


def columnar_rows(data: bytes, asked: Wanted, aborted: Iterable[tuple[int, int]] | None = None) -> list[tuple[object, ...]]:
    decoded = decode_batches(data, asked, committed=None if aborted is None else CommittedFilter(aborted))
    decoded.validate(full=True)
    assert decoded.schema.equals(schema.arrow_schema(asked.columns))
    columns = [
        column.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist()
        for column in decoded.columns
    ]
    return list(zip(*columns, strict=True))


def assert_equal_or_both_refused(data: bytes, asked: Wanted, aborted: Iterable[tuple[int, int]] | None = None) -> None:
    assert outcome(columnar_rows, data, asked, aborted) == outcome(scalar_rows, data, asked, aborted)


def outcome(
    read: Callable[..., list[tuple[object, ...]]], *arguments: object
) -> list[tuple[object, ...]] | tuple[type[RequestError], str]:
    try:
        return read(*arguments)
    except RequestError as error:
        return type(error), str(error)


@given(record_lists(min_size=1), compression_types(), st.sampled_from(TimestampType))
@example(MIXED, CompressionType.NONE, TimestampType.CREATE_TIME)
@example([(5, b"k", b"v", ()) for _ in range(200)], CompressionType.NONE, TimestampType.CREATE_TIME)
def test_columns_hold_what_reading_record_by_record_yields(
    records: list[RecordTuple], compression_type: CompressionType, timestamp_type: TimestampType
) -> None:
    batch = build_batch(
        records, base_offset=7, compression_type=compression_type, timestamp_type=timestamp_type, log_append_time=12345
    )
    assert columnar_rows(batch, wanted(UNTIMED)) == scalar_rows(batch, wanted(UNTIMED))
    if all(record[0] < 2**63 // 1000 for record in records) or timestamp_type == TimestampType.LOG_APPEND_TIME:
        assert columnar_rows(batch, wanted()) == scalar_rows(batch, wanted())
    else:
        with pytest.raises(InvalidRecordError, match=r"t-3 offset \d+: timestamp \d+ ms does not fit"):
            columnar_rows(batch, wanted())


@given(st.lists(st.tuples(record_lists(max_size=6), compression_types(), st.booleans()), max_size=6), st.data())
def test_any_columns_of_any_range_of_many_batches_are_those_of_the_scalar_codec(
    drawn: list[tuple[list[RecordTuple], CompressionType, bool]], data: st.DataObject
) -> None:
    """With gaps as compaction leaves them inside, between and at the end of batches, and batches it has emptied."""
    offset = first = data.draw(st.integers(0, 2**40))
    stored = b""
    for records, compression_type, is_append_time in drawn:
        timestamp_type = TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
        builder = BatchBuilder(
            base_offset=offset, compression_type=compression_type, timestamp_type=timestamp_type, log_append_time=99
        )
        for record in records:
            offset += data.draw(st.sampled_from((0, 0, 0, 1, 70, 9000)))
            builder.append_at(offset, *record)
            offset += 1
        last = offset + data.draw(st.sampled_from((0, 0, 5)))
        stored += builder.build(last_offset=last) or empty_batch_header(base_offset=offset, last_offset=last, max_timestamp=9)
        offset = last + 1
    columns = data.draw(st.lists(st.sampled_from(UNTIMED), unique=True, min_size=1).map(tuple))
    low = data.draw(st.integers(first, offset))
    asked = wanted(columns, low=low, high=data.draw(st.integers(low, offset + 1)), check_crcs=True)
    assert columnar_rows(stored, asked) == scalar_rows(stored, asked)
    assert next_offset(stored) == (offset if drawn else None)


PLAIN = build_batch(MIXED)[61:]
MANY = build_batch([(1_000 + row, b"key", b"value %d" % row, ()) for row in range(100)])[61:]


@given(damaged(PLAIN), st.integers(-1, 6), st.sampled_from((schema.COLUMNS, UNTIMED, ("value",), ("headers", "offset"))))
@example(PLAIN, 4, schema.COLUMNS)
def test_damaged_records_are_read_as_by_the_scalar_codec(records: bytes, count: int, columns: tuple[str, ...]) -> None:
    batch, _ = with_records(records, count=count, last_offset_delta=5, base_timestamp=1000)
    assert_equal_or_both_refused(batch, wanted(columns))
    sound = build_batch(MIXED, base_offset=6)
    assert_equal_or_both_refused(sound + batch + sound, wanted(columns))


@given(st.data(), st.sampled_from(CompressionType), st.integers(0, 0xDF), st.integers(-(2**31), 2**31 - 1))
def test_any_bytes_behind_a_header_are_read_or_refused_as_the_scalar_codec_does(
    data: st.DataObject, compression_type: CompressionType, attributes: int, count: int
) -> None:
    records = data.draw(st.one_of(damaged(compress(compression_type, PLAIN)), st.binary(max_size=60)))
    batch, _ = with_records(
        records,
        count=data.draw(st.sampled_from((count, 4, 1))),
        attributes=data.draw(st.sampled_from((attributes & ~0x20, compression_type))),
        last_offset_delta=3,
        base_timestamp=1000,
        max_timestamp=1000,
    )
    assert_equal_or_both_refused(batch, wanted())


@given(damaged(build_batch(MIXED) + build_batch(MIXED, base_offset=4)), st.booleans())
def test_damaged_batches_are_read_or_refused_as_the_scalar_codec_does(data: bytes, check_crcs: bool) -> None:
    assert_equal_or_both_refused(data, wanted(UNTIMED, check_crcs=check_crcs))


@given(damaged(PLAIN), st.integers(1, 6))
def test_metadata_are_equal_where_whole_records_are(records: bytes, count: int) -> None:
    """Without keys, values and headers nobody looks at them: damage there is not seen."""
    batch, _ = with_records(records, count=count, last_offset_delta=5, base_timestamp=1000)
    try:
        expected = scalar_rows(batch, wanted(METADATA))
    except InvalidRecordError:
        return
    assert columnar_rows(batch, wanted(METADATA)) == expected


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x00\x00\x00\x05\x07\x02\x02h\x09", id="any-negative-length-is-null"),
        pytest.param(b"\xff\x00\x00\x01\x01\x00", id="attributes-are-ignored"),
        pytest.param(b"\x00\x80\x80\x00\x80\x00\x81\x80\x00\x81\x00\x80\x00", id="long-forms"),
        pytest.param(b"\x00" + b"\x80" * 9 + b"\x7e\x00\x01\x01\x00", id="bits-above-64-are-dropped"),
        pytest.param(b"\x00\x00" + b"\x80" * 4 + b"\x7f\x01\x01\x00", id="bits-above-32-are-dropped"),
        pytest.param(b"\x00\x00\x00\x01\x01\x02\x04\xffa\x00", id="header-key-that-is-not-utf8"),
        pytest.param(b"\x00\x00\x00\x01\x01\x02\x06\xed\xa0\x80\x00", id="header-key-that-is-a-surrogate"),
        pytest.param(b"\x00\x00\x00\x01\x01" + encode_varint(200) + b"\x02h\x01" * 200, id="many-headers"),
    ],
)
def test_unusual_records_are_read_as_the_scalar_codec_reads_them(body: bytes) -> None:
    batch, _ = with_records(encode_varint(len(body)) + body, count=1, base_timestamp=5)
    assert len(columnar_rows(batch, wanted())) == 1
    assert columnar_rows(batch, wanted()) == scalar_rows(batch, wanted())


def test_a_batch_of_wild_lengths_is_refused_without_memory_for_them() -> None:
    batch, _ = with_records(MANY, count=2**31 - 1)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecordError, match=r"end inside record 100 of 2147483647"):
            decode_batches(batch, wanted())
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_lengths_that_run_out_of_the_batch_are_not_followed_into_the_next() -> None:
    body = b"\x00\x00\x00\x01" + encode_varint(100)
    batch, _ = with_records(encode_varint(len(body)) + body, count=1)
    with pytest.raises(InvalidRecordError, match="record 0"):
        decode_batches(batch + build_batch(MIXED, base_offset=1), wanted(("value",)))


def test_the_first_damaged_batch_is_the_one_that_is_told() -> None:
    first, _ = with_records(b"\x01", count=1, base_offset=10)
    second = patched(build_batch(MIXED, base_offset=11), magic=7)
    with pytest.raises(InvalidRecordError, match="offset 10"):
        decode_batches(first + second, wanted())
    with pytest.raises(CorruptRecordError, match="magic is 7"):
        decode_batches(build_batch(MIXED) + second, wanted())


def test_control_batches_give_no_rows_and_aborted_ones_only_without_a_filter() -> None:
    def batch(base_offset: int, producer_id: int, is_transactional: bool = True) -> bytes:
        options: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        records: list[RecordTuple] = [(1, None, b"%d" % base_offset, ())]
        return build_batch(records, base_offset=base_offset, is_transactional=is_transactional, **options)

    def marker(base_offset: int, producer_id: int, commit: bool) -> bytes:
        return end_txn_marker(
            producer_id=producer_id, producer_epoch=0, commit=commit, timestamp=1, coordinator_epoch=0, base_offset=base_offset
        )

    data = b"".join(
        (
            batch(0, 1),
            batch(1, 2),
            marker(2, 1, commit=False),
            batch(3, 1),
            batch(4, 3, is_transactional=False),
            marker(5, 2, commit=True),
            marker(6, 1, commit=True),
        )
    )
    asked = wanted(("offset",))
    assert columnar_rows(data, asked) == [(0,), (1,), (3,), (4,)]
    assert columnar_rows(data, asked, [(1, 0)]) == scalar_rows(data, asked, [(1, 0)]) == [(1,), (3,), (4,)]
    above = wanted(("offset",), low=3)
    assert columnar_rows(data, above, [(1, 0)]) == scalar_rows(data, above, [(1, 0)]) == [(3,), (4,)]


def test_a_cut_short_batch_at_the_end_is_left_out() -> None:
    batch = build_batch(MIXED)
    data = batch + build_batch(MIXED, base_offset=4)
    for stop in (len(batch), len(batch) + 11, len(batch) + 70, len(data) - 1):
        assert columnar_rows(data[:stop], wanted(("offset",))) == [(0,), (1,), (2,), (3,)]
        assert next_offset(data[:stop]) == 4
    assert next_offset(batch[:60]) is None
    assert decode_batches(b"", wanted()).num_rows == 0


def test_a_wrong_crc_is_refused_when_it_is_asked_for_inside_the_range_only() -> None:
    damaged_batch = bytearray(build_batch(MIXED))
    damaged_batch[-1] ^= 0x80
    data = bytes(damaged_batch) + build_batch(MIXED, base_offset=4)
    with pytest.raises(CorruptRecordError, match="batch at offset 0 carries CRC"):
        decode_batches(data, wanted(check_crcs=True))
    assert columnar_rows(data, wanted(("offset",), low=4, check_crcs=True)) == [(4,), (5,), (6,), (7,)]


def test_a_record_without_a_timestamp_has_the_millisecond_before_the_epoch() -> None:
    [row] = decode_batches(build_batch([(-1, None, None, ())]), wanted(("timestamp",))).to_pylist()
    assert row["timestamp"] == datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=datetime.UTC)


@pytest.mark.parametrize("base_offset", [2**63 - 3, -(2**63)])
def test_offsets_at_the_end_of_64_bits_are_not_wrapped(base_offset: int) -> None:
    batch = patched(build_batch(MIXED), base_offset=base_offset)
    for low, high in ((0, INT64_MAX), (-(2**63), INT64_MAX)):
        asked = wanted(UNTIMED, low=low, high=high)
        assert columnar_rows(batch, asked) == scalar_rows(batch, asked)


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_is_read_and_not_kept(buffer: Any) -> None:
    data = buffer(build_batch(MIXED) * 2)
    decoded = decode_batches(data, wanted())
    if isinstance(data, bytearray):
        data[:] = bytes(len(data))
        data.clear()
    assert decoded.column("value").to_pylist() == [record[2] for record in MIXED] * 2


@pytest.mark.parametrize("compression_type", CompressionType)
def test_more_than_one_group_is_decoded_in_order(compression_type: CompressionType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_starts, "GROUP_BYTES", 30_000)
    monkeypatch.setattr(record_starts, "GROUP_RECORDS", 10)
    batches = [
        build_batch(MIXED[:1] * (row % 4 + 1), base_offset=row * 10, compression_type=compression_type if row % 3 else 0)
        for row in range(12)
    ]
    data = b"".join(batches)
    assert columnar_rows(data, wanted()) == scalar_rows(data, wanted())


SIZES = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 100, 100, 100)


@given(st.data(), st.sampled_from((1, 12)))
def test_damage_in_some_of_many_batches_is_read_or_refused_as_the_scalar_codec_does(data: st.DataObject, least: int) -> None:
    """Enough batches that their records are passed together; some records are too long for that."""
    batches = []
    for number, size in enumerate(data.draw(st.permutations(SIZES))):
        long = data.draw(st.sampled_from((0, 0, 0, 9000)))
        built = build_batch([(1_000 + row, b"key", b"value %d" % row + bytes(long), ()) for row in range(size)])
        records = data.draw(damaged(built[61:])) if data.draw(st.integers(0, 9)) == 0 else built[61:]
        count = size + data.draw(st.sampled_from((0,) * 30 + (1, -1)))
        batches.append(with_records(records, count=count, base_offset=number * 100, base_timestamp=1000)[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_starts, "LEAST_BATCHES", least)
        assert_equal_or_both_refused(b"".join(batches), wanted())
        assert_equal_or_both_refused(b"".join(batches), wanted(("value", "offset"), low=250, high=1050))


def test_a_count_above_the_records_is_not_met_by_records_without_bytes() -> None:
    batches = [build_batch(MIXED[:1] * 3, base_offset=number * 3) for number in range(20)]
    batches[-1] = patched(batches[-1], records_count=4)
    assert_equal_or_both_refused(b"".join(batches), wanted())
    assert_equal_or_both_refused(b"".join(batches), wanted(METADATA))


@pytest.mark.parametrize("columns", [schema.COLUMNS, METADATA], ids=["all", "metadata"])
@pytest.mark.parametrize("batches", [1, 20])
def test_a_count_below_the_records_is_refused_whatever_columns_are_wanted(columns: tuple[str, ...], batches: int) -> None:
    data = [build_batch(MIXED, base_offset=number * 4) for number in range(batches)]
    data[-1] = patched(data[-1], records_count=3)
    with pytest.raises(InvalidRecordError, match=f"offset {batches * 4 - 4}: its 3 records take 9112 of 9127 bytes"):
        decode_batches(b"".join(data), wanted(columns))


def test_the_largest_deltas_need_no_help_of_the_scalar_codec() -> None:
    builder = BatchBuilder(delete_horizon_ms=2**53)
    for offset, timestamp in ((0, 1 << 53), (1 << 28, 0), (2**31 - 2, -1), (2**31 - 1, 2**53 + 2**40)):
        builder.append_at(offset, timestamp, b"k" * 9000, None, (("h", None),) * 64)
    batch = builder.build()
    [group] = record_starts.batch_groups(batch, record_starts.Selection(0, INT64_MAX, False, None))
    [decoded] = group_columns.group_columns(group, wanted(("timestamp",)))
    assert decoded.cast(pa.int64()).to_pylist() == [row[0] for row in scalar_rows(batch, wanted(("timestamp",)))]
    assert columnar_rows(batch, wanted()) == scalar_rows(batch, wanted())


@pytest.mark.merge
@pytest.mark.parametrize("compression_type", [CompressionType.NONE, CompressionType.ZSTD])
def test_a_value_of_64_mib_is_read_when_its_batch_may_be_that_large(compression_type: CompressionType) -> None:
    value = bytes(64 << 20)
    batch = build_batch([(1, None, value, ())], compression_type=compression_type)
    if compression_type == CompressionType.NONE:
        assert decode_batches(batch, wanted()).column("value")[0].as_buffer() == value
    else:
        with pytest.raises(RecordTooLargeError, match=r"(?i)at most 67108864 bytes are allowed"):
            decode_batches(batch, wanted())


def test_more_than_columns_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_DECODED_BYTES", 100_000)
    batch = build_batch([(1, None, bytes(30_000), ())], compression_type=CompressionType.ZSTD)
    assert decode_batches(batch * 3, wanted(("value",))).num_rows == 3
    with pytest.raises(RecordTooLargeError, match=r"t-3: \d+ bytes of batches, the last at offset 0, become more than 100000"):
        decode_batches(batch * 4, wanted(("value",)))


bounds_of_time = st.none() | st.integers(0, 40)


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(-1, 40), st.none() | st.binary(max_size=3), st.just(b"v"), st.just(())), min_size=1),
            compression_types(),
            st.booleans(),
        ),
        max_size=4,
    ),
    bounds_of_time,
    bounds_of_time,
    st.sampled_from((schema.COLUMNS, ("offset",), ("timestamp",), ("headers", "key"))),
)
def test_a_range_of_times_is_the_filter_of_all_records(
    drawn: list[tuple[list[RecordTuple], CompressionType, bool]], start: int | None, end: int | None, columns: tuple[str, ...]
) -> None:
    data, offset = b"", 0
    for records, compression_type, is_append_time in drawn:
        timestamp_type = TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
        data += build_batch(
            records, base_offset=offset, compression_type=compression_type, timestamp_type=timestamp_type, log_append_time=20
        )
        offset += len(records)
    expected = [
        tuple(cell(record, column, header.timestamp_type == TimestampType.LOG_APPEND_TIME) for column in columns)
        for header, batch in iter_batches(data)
        for record in iter_records(batch, header)
        if (start, end) == (None, None) or (start or 0) <= record.timestamp < (INT64_MAX if end is None else end)
    ]
    assert columnar_rows(data, wanted(columns, start_timestamp=start, end_timestamp=end)) == expected


def test_every_timestamp_fits_into_milliseconds() -> None:
    records: list[RecordTuple] = [(timestamp, None, b"v", ()) for timestamp in (-1, 0, 1_700_000_000_000, 2**63 - 2)]
    for compression_type in (CompressionType.NONE, CompressionType.ZSTD):
        batch = build_batch(records, compression_type=compression_type)
        [column] = decode_batches(batch, wanted(("timestamp",), timestamp_unit="ms")).columns
        assert column.type == pa.timestamp("ms", tz="UTC")
        assert column.cast(pa.int64()).to_pylist() == [record[0] for record in records]
