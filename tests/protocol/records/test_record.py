"""Reading records, walking them unread, and finding one by time: the three must tell the same of any bytes.

Control records: what is accepted as one, and what the types are.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.errors import CorruptRecordError, InvalidRecordError, RecordTooLargeError
from triolog.protocol.records.batch import BatchHeader, empty_batch_header, end_txn_marker, iter_batches, parse_header, stamp
from triolog.protocol.records.builder import BatchBuilder, build_batch
from triolog.protocol.records.compression import compress
from triolog.protocol.records.control import ControlRecordType, control_record_type, coordinator_epoch
from triolog.protocol.records.record import CommittedFilter, first_record_at, iter_records
from triolog.protocol.records.varint import encode_varint
from triolog.protocol.records.walk import RecordsWalk, walk_records
from triolog.protocol.types import CompressionType, Record, TimestampType

from tests.support.record_batches import (
    RecordTuple,
    compression_types,
    damaged,
    patched,
    record_lists,
    timestamps,
    with_records,
)

MAX_BYTES = 1 << 20
THREE = build_batch([(1, b"a", b"1", ()), (2, b"b", b"2", ()), (3, b"c", b"3", ())])
MIXED = build_batch(
    [
        (1_000, b"k" * 70, b"v" * 9000, ()),
        (900, None, None, (("h", None), ("name", b"value"))),
        (-1, b"", b"", ()),
        (1_000 + (1 << 40), None, b"x", ()),
    ]
)


def records_of(batch: bytes, header: BatchHeader) -> list[Record]:
    return list(iter_records(batch, header, max_bytes=MAX_BYTES))


def record_bytes(body: str) -> bytes:
    """A record of the hexadecimal `body`, with its true length before it."""
    data = bytes.fromhex(body)
    return encode_varint(len(data)) + data


def test_a_record_is_laid_out_as_kafka_lays_it_out() -> None:
    batch = build_batch([(5, None, b"test", ())])
    assert batch[61:] == bytes.fromhex("14 00 00 00 01 08 74657374 00")
    assert list(iter_records(batch)) == [Record(0, 5, None, b"test", ())]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        pytest.param("00 00 00 05 07 02 0268 09", (("h", None),), id="any-negative-length-is-null"),
        pytest.param("00 00 00 01 01 02 04ff61 00", (("\ufffda", b""),), id="a-header-key-that-is-not-utf8-has-replacements"),
        pytest.param("ff 00 00 01 01 00", (), id="attributes-are-ignored"),
    ],
)
def test_unusual_records_are_read(body: str, headers: tuple[tuple[str, bytes | None], ...]) -> None:
    batch, header = with_records(record_bytes(body), count=1)
    assert records_of(batch, header) == [Record(0, 0, None, None, headers)]
    assert (walk_records(batch, header).records_count, walk_records(batch, header).has_null_key) == (1, True)


@pytest.mark.parametrize(
    ("records", "count"),
    [
        pytest.param(encode_varint(100) + bytes(3) + b"\x01" + encode_varint(105) + bytes(200), 1, id="value-size"),
        pytest.param(record_bytes("00 00 00 01 01 01"), 1, id="negative-headers-count"),
        pytest.param(record_bytes("00 00 00 01 01 7e"), 1, id="headers-count-above-remaining"),
        pytest.param(record_bytes("00 00 00 01 01 02 02 68 7e 61"), 1, id="header-value-beyond-body"),
        pytest.param(record_bytes("00 00 00 01 01 04 02 68 02 61"), 1, id="headers-count-too-high"),
        pytest.param(record_bytes("00 00 00 01 01 02 02 68 02 61 02 68 02 61"), 1, id="headers-count-too-low"),
        pytest.param(record_bytes("00 00 00 01 01 02 01 02 61"), 1, id="null-header-key"),
        pytest.param(record_bytes("00 80"), 1, id="underflow-in-timestamp-delta"),
        pytest.param(encode_varint(10), 1, id="body-missing"),
        pytest.param(encode_varint(-11) + bytes.fromhex("00 00 00 01 01 00"), 1, id="negative-length"),
        pytest.param(b"\xff\xff\xff\xff\xff\x01", 1, id="varint-too-long"),
        pytest.param(b"", 1, id="no-records"),
        pytest.param(THREE[61:], 2, id="count-too-low"),
        pytest.param(THREE[61:], 4, id="count-too-high"),
        pytest.param(THREE[61:], 2**31 - 1, id="count-absurd"),
        pytest.param(THREE[61:] + b"\x00", 3, id="byte-behind-the-records"),
        pytest.param(THREE[61:], -1, id="negative-count"),
    ],
)
@pytest.mark.parametrize("compression_type", CompressionType)
def test_records_that_contradict_themselves_are_invalid(records: bytes, count: int, compression_type: CompressionType) -> None:
    """Kafka: DefaultRecordTest.testInvalidValueSize, testInvalidNumHeaders, testInvalidHeaderValue,
    testBasicSerdeInvalidHeaderCountTooHigh, testBasicSerdeInvalidHeaderCountTooLow, testUnderflowReadingVarlong,
    testInvalidSizeOfBodyInBytes, DefaultRecordBatchTest.testInvalidRecordCountTooLittleNonCompressedV2,
    testInvalidRecordCountTooLittleCompressedV2."""
    batch, header = with_records(compress(compression_type, records), count=count, attributes=compression_type)
    with pytest.raises(InvalidRecordError):
        records_of(batch, header)
    with pytest.raises(InvalidRecordError):
        walk_records(batch, header)


@pytest.mark.parametrize(("last_offset_delta", "count"), [(0, 3), (15, 3), (-3, 3), (5, 6), (1, 2), (-1, 0), (-5, -4)])
@pytest.mark.parametrize("compression_type", [CompressionType.NONE, CompressionType.GZIP])
def test_a_count_the_offsets_deny_is_invalid(last_offset_delta: int, count: int, compression_type: CompressionType) -> None:
    records = compress(compression_type, THREE[61:])
    batch, header = with_records(records, count=count, last_offset_delta=last_offset_delta, attributes=compression_type)
    with pytest.raises(InvalidRecordError):
        walk_records(batch, header)


@pytest.mark.parametrize("compression_type", [CompressionType.NONE, CompressionType.GZIP])
@pytest.mark.parametrize("deltas", [(0,) * 20, (1, 2, 3), (0, 1, 3), (0, 2, 1), (-1, 0, 1)])
def test_other_offset_deltas_of_a_producer_are_invalid(deltas: tuple[int, ...], compression_type: CompressionType) -> None:
    records = b"".join(record_bytes(f"00 00 {encode_varint(delta).hex()} 01 01 00") for delta in deltas)
    batch, header = with_records(compress(compression_type, records), count=len(deltas), attributes=compression_type)
    with pytest.raises(InvalidRecordError, match="offset delta"):
        walk_records(batch, header)


@pytest.mark.parametrize("deltas", [(0, 0), (3, 2), (0, 6), (-1, 2)])
def test_offset_deltas_of_a_compacted_batch_still_increase_within_the_batch(deltas: tuple[int, ...]) -> None:
    records = b"".join(record_bytes(f"00 00 {encode_varint(delta).hex()} 01 01 00") for delta in deltas)
    batch, header = with_records(records, count=len(deltas), last_offset_delta=5)
    with pytest.raises(InvalidRecordError, match="offset delta is 5"):
        walk_records(batch, header, allow_gaps=True)


def test_a_count_of_zero_has_nothing_to_read_and_data_behind_it_is_refused() -> None:
    batch, header = with_records(b"", count=0, last_offset_delta=5)
    assert walk_records(batch, header, allow_gaps=True) == RecordsWalk(0, -1, False, -1)
    assert records_of(batch, header) == []
    with pytest.raises(InvalidRecordError, match="counts 0 records"):
        walk_records(batch, header)
    batch, header = with_records(b"garbage", count=0, last_offset_delta=5)
    assert records_of(batch, header) == []
    with pytest.raises(InvalidRecordError, match="7 bytes of them"):
        walk_records(batch, header, allow_gaps=True)


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, "02"), (-(2**63), "01")])
def test_a_timestamp_outside_64_bits_is_invalid(base: int, delta: str) -> None:
    batch, header = with_records(record_bytes(f"00 {delta} 00 01 01 00"), count=1, base_timestamp=base)
    with pytest.raises(InvalidRecordError, match="exceed 64 bits"):
        records_of(batch, header)
    with pytest.raises(InvalidRecordError, match="exceed 64 bits"):
        walk_records(batch, header)


def test_the_smallest_timestamp_is_of_the_records_that_have_one() -> None:
    walk = walk_records(MIXED, parse_header(MIXED))
    assert walk == RecordsWalk(4, 1_000 + (1 << 40), True, 900)
    untimed = build_batch([(-1, b"k", None, ())])
    assert walk_records(untimed, parse_header(untimed)) == RecordsWalk(1, -1, False, -1)


def test_less_than_a_header_is_no_batch() -> None:
    with pytest.raises(CorruptRecordError, match="60 bytes are not a record batch"):
        list(iter_records(THREE[:60]))


@pytest.mark.parametrize("compression_type", [member for member in CompressionType if member])
def test_records_beyond_the_limit_are_too_large(compression_type: CompressionType) -> None:
    batch = build_batch([(1, None, bytes(100_000), ())], compression_type=compression_type)
    header = parse_header(batch)
    assert walk_records(batch, header, max_bytes=100_020).records_count == 1
    with pytest.raises(RecordTooLargeError):
        walk_records(batch, header, max_bytes=100_000)
    with pytest.raises(RecordTooLargeError):
        list(iter_records(batch, header, max_bytes=100_000))
    with pytest.raises(RecordTooLargeError):
        first_record_at(batch, header, timestamp=1, min_offset=0, max_bytes=100_000)


@given(record_lists(min_size=1), compression_types(), st.sampled_from(TimestampType))
def test_walks_are_as_reading(
    records: list[RecordTuple], compression_type: CompressionType, timestamp_type: TimestampType
) -> None:
    """Kafka: DefaultRecordBatchTest.testSkipKeyValueIteratorCorrectness."""
    batch = build_batch(records, compression_type=compression_type, timestamp_type=timestamp_type, log_append_time=12345)
    header = parse_header(batch)
    assert_walk_agrees(batch, header, walk_records(batch, header))
    assert walk_records(batch, header, allow_gaps=True) == walk_records(memoryview(batch), header)


@given(record_lists(min_size=1, max_size=8), st.data())
def test_a_walk_with_gaps_tells_what_reading_tells(records: list[RecordTuple], data: st.DataObject) -> None:
    builder = BatchBuilder(base_offset=7)
    offset = 7
    for record in records:
        offset += data.draw(st.integers(0, 9000))
        builder.append_at(offset, *record)
        offset += 1
    batch = builder.build(last_offset=offset + 1)
    header = parse_header(batch)
    assert_walk_agrees(batch, header, walk_records(batch, header, allow_gaps=True))
    with pytest.raises(InvalidRecordError):
        walk_records(batch, header)


def assert_walk_agrees(batch: bytes, header: BatchHeader, walk: RecordsWalk) -> None:
    records = records_of(batch, header)
    stamped = [record.timestamp for record in records if record.timestamp != -1]
    assert walk.records_count == len(records)
    assert walk.max_timestamp == max(record.timestamp for record in records)
    assert walk.min_timestamp == min(stamped, default=-1)
    assert walk.has_null_key == any(record.key is None for record in records)


@given(record_lists(min_size=1), timestamps(), st.integers(-2, 25), st.sampled_from(TimestampType))
def test_the_first_record_at_a_time_is_what_a_scan_finds(
    records: list[RecordTuple], timestamp: int, from_offset: int, timestamp_type: TimestampType
) -> None:
    batch = build_batch(records, base_offset=1000, timestamp_type=timestamp_type, log_append_time=1_700_000_010_000)
    header = parse_header(batch)
    for asked in (timestamp, *(record[0] for record in records), 1_700_000_010_000, 1_700_000_010_001):
        found = first_record_at(batch, header, timestamp=asked, min_offset=1000 + from_offset)
        assert found == scan(batch, header, asked, 1000 + from_offset)


def scan(batch: bytes, header: BatchHeader, timestamp: int, min_offset: int) -> tuple[int, int] | None:
    for record in iter_records(batch, header, max_bytes=MAX_BYTES):
        if record.timestamp >= timestamp and record.offset >= min_offset:
            return record.offset, record.timestamp
    return None


@given(damaged(MIXED[61:]), st.integers(-1, 6), st.integers(-1, 6), st.booleans())
@example(MIXED[61:], 4, 3, False)
def test_walking_accepts_what_reading_accepts(records: bytes, count: int, last_offset_delta: int, allow_gaps: bool) -> None:
    batch, header = with_records(records, count=count, last_offset_delta=last_offset_delta, base_timestamp=1000)
    try:
        read: list[Record] | None = records_of(batch, header)
    except InvalidRecordError:
        read = None
    try:
        walk: RecordsWalk | None = walk_records(batch, header, allow_gaps=allow_gaps)
    except InvalidRecordError:
        walk = None
    if read is None or (count == 0 and records):
        assert walk is None
        with contextlib.suppress(InvalidRecordError):
            first_record_at(batch, header, timestamp=950, min_offset=0)
        return
    deltas = [record.offset for record in read]
    consecutive = bool(deltas) and deltas == list(range(last_offset_delta + 1))
    increasing = deltas == sorted(set(deltas)) and all(0 <= delta <= last_offset_delta for delta in deltas)
    assert (walk is not None) == (consecutive or (allow_gaps and increasing and last_offset_delta >= 0))
    for timestamp in (950, 2000):
        assert first_record_at(batch, header, timestamp=timestamp, min_offset=0) == scan(batch, header, timestamp, 0)


@pytest.mark.parametrize("compression_type", CompressionType)
def test_reading_is_the_same_for_every_codec(compression_type: CompressionType) -> None:
    """Kafka: DefaultRecordBatchTest.testStreamingIteratorConsistency, testSkipKeyValueIteratorCorrectness."""
    big: list[RecordTuple] = [
        (1, b"k", b"v" * 200 * 1024, ()),
        (2, None, None, (("h", None),)),
        (3, b"k", None, (("a", b"1"), ("a", b"2"))),
    ]
    batch = build_batch(big, compression_type=compression_type)
    header = parse_header(batch)
    plain = build_batch(big)
    assert records_of(batch, header) == records_of(plain, parse_header(plain))
    assert walk_records(batch, header) == walk_records(plain, parse_header(plain))


def test_a_walk_states_where_the_batch_contradicts_itself() -> None:
    batch = patched(THREE, base_offset=77)[:-1]
    with pytest.raises(InvalidRecordError, match=r"batch at offset 77: .* end inside record 2 of 3"):
        walk_records(batch, parse_header(batch))


def data(producer_id: int, offset: int, *, transactional: bool = True, records: int = 1) -> bytes:
    return build_batch(
        [(0, None, b"%d" % (offset + index), ()) for index in range(records)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=transactional,
    )


def marker(producer_id: int, offset: int, *, commit: bool) -> bytes:
    return end_txn_marker(
        producer_id=producer_id, producer_epoch=0, commit=commit, timestamp=0, coordinator_epoch=0, base_offset=offset
    )


def seen(batches: list[bytes], aborted: list[tuple[int, int]]) -> list[int]:
    """Base offsets of the batches that are not left out."""
    committed = CommittedFilter(aborted)
    return [header.base_offset for header, batch in iter_batches(b"".join(batches)) if not committed.leaves_out(header, batch)]


def test_an_aborted_transaction_hides_its_own_batches_up_to_the_next_marker() -> None:
    """Where damage took the ABORT out, the next COMMIT ends it: it cannot stand inside of an aborted transaction, although
    Kafka's readers go on leaving out. A marker that compaction emptied ends nothing, and a stamp hides nothing."""
    assert seen([data(1, 0), marker(1, 2, commit=True), data(1, 3)], [(1, 0)]) == [3]
    assert seen([data(1, 0), data(1, 1, transactional=False), data(1, 2, transactional=False)], [(1, 0)]) == [1, 2]
    empty = empty_batch_header(
        base_offset=1, last_offset=1, max_timestamp=0, producer_id=1, producer_epoch=0, is_transactional=True, is_control=True
    )
    assert seen([data(1, 0), empty, data(1, 2)], [(1, 0)]) == []
    batch = data(1, 0)
    stamped = stamp(5, parse_header(batch), 3) + batch[16:]
    assert seen([stamped, marker(1, 6, commit=False)], [(1, 5)]) == []


class Step(NamedTuple):
    producer_id: int
    action: str  # "write", "commit", "abort"


STEPS = st.lists(st.builds(Step, st.integers(0, 3), st.sampled_from(["write", "write", "commit", "abort"])), max_size=40)


@given(steps=STEPS, from_batch=st.integers(0, 40))
def test_any_interleaving_of_transactions_shows_exactly_the_committed_batches(steps: list[Step], from_batch: int) -> None:
    """Against a model that knows each batch's fate when its transaction ends; open ones lie past the last stable offset.

    As a broker's answer does, the list leaves out transactions whose marker lies before the first batch read.
    """
    batches: list[bytes] = []
    fate: dict[int, bool] = {}  # base offset of a batch -> committed
    open_since: dict[int, list[int]] = {}
    aborted: list[tuple[int, int]] = []
    for offset, (producer_id, action) in enumerate(steps):
        if action == "write":
            batches.append(data(producer_id, offset))
            open_since.setdefault(producer_id, []).append(offset)
        else:
            batches.append(marker(producer_id, offset, commit=action == "commit"))
            written = open_since.pop(producer_id, [])
            fate |= dict.fromkeys(written, action == "commit")
            if written and action == "abort" and offset >= from_batch:
                aborted.append((producer_id, written[0]))
    stable = min((written[0] for written in open_since.values()), default=len(steps))
    read = [batch for batch in batches[from_batch:] if parse_header(batch).base_offset < stable]
    expected = [offset for offset in sorted(fate) if fate[offset] and from_batch <= offset < stable]
    assert seen(read, aborted) == expected


def test_a_known_type_is_read_from_the_key_also_of_a_later_version_and_a_longer_one() -> None:
    for control_type in (member for member in ControlRecordType if member >= 0):
        assert control_record_type(bytes((0, 0, 0, control_type))) is control_type
    for key in ("00000007", "00007fff", "0000ffff"):
        assert control_record_type(bytes.fromhex(key)) is ControlRecordType.UNKNOWN
    assert control_record_type(bytes.fromhex("7fff0001ffff")) is ControlRecordType.COMMIT
    assert coordinator_epoch(bytes.fromhex("000900000007ff")) == 7


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", bytes.fromhex("ffff0000")])
def test_a_short_key_or_a_negative_version_is_invalid(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match="control record key"):
        control_record_type(key)


@pytest.mark.parametrize("value", [None, b"", bytes(5), bytes.fromhex("ffff00000000")])
def test_a_short_value_or_a_negative_version_of_it_is_invalid(value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match="end transaction marker value"):
        coordinator_epoch(value)
