"""What compaction leaves of one batch, how it finds its records, and what it knows of transactions along a pass."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidRecordError
from triolog.protocol.records.batch import RECORD_BATCH_OVERHEAD, BatchHeader, check_batch, end_txn_marker, parse_header
from triolog.protocol.records.builder import BatchBuilder, build_batch
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import NO_TIMESTAMP, Bytes, CompressionType, TimestampType
from triolog.server.storage.cleaner.batch_filter import (
    BatchFilter,
    CleanedTransactions,
    FilteredBatch,
    LastRecord,
    OffsetMap,
    RetentionRules,
    record_spans,
)
from triolog.server.storage.indexes.transaction_index import AbortedTxn

NOW = 1_000
CODECS = pytest.mark.parametrize("codec", CompressionType)


def batch_filter(
    offsets: dict[bytes, int], *, latest: int = 10**6, aborted: tuple[AbortedTxn, ...] = (), **rules: Any
) -> BatchFilter:
    """A filter in the middle of a round; `latest`: up to where the map goes."""
    known = OffsetMap(1 << 14)
    known.put_all(offsets.items())
    known.latest_offset = latest
    transactions = CleanedTransactions()
    transactions.add_aborted(aborted)
    settings: dict[str, Any] = {"now_ms": NOW, "delete_retention_ms": 50, "end_offset": -1} | rules
    return BatchFilter(RetentionRules(**settings), known, transactions)


def goes(filtering: BatchFilter, batch: bytes) -> bool:
    return not filtering.filter(parse_header(batch), memoryview(batch)).data


def run(filtering: BatchFilter, batch: bytes) -> tuple[FilteredBatch, BatchHeader]:
    filtered = filtering.filter(parse_header(batch), memoryview(batch))
    assert filtered.data
    header = parse_header(filtered.data)
    check_batch(memoryview(filtered.data), header)
    assert header.max_timestamp == filtered.max_timestamp
    return filtered, header


def records(batch: Bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(record.offset, record.timestamp, record.key, record.value) for record in iter_records(batch)]


def batch_of(*entries: tuple[int, bytes | None, bytes | None], **options: Any) -> bytes:
    """A batch of (timestamp, key, value) from offset 3 on."""
    return build_batch([(*entry, (("h", b"1"),)) for entry in entries], base_offset=3, **options)


@CODECS
def test_a_batch_that_loses_nothing_is_copied(codec: CompressionType) -> None:
    batch = batch_of((11, b"a", b"1"), (12, b"b", b"2"), compression_type=codec)
    filtered, _ = run(batch_filter({b"a": 3, b"b": 4}), batch)
    assert filtered.data == batch


@CODECS
@pytest.mark.parametrize("kept", [[3], [4], [5], [3, 4], [3, 5], [4, 5]])
def test_records_with_a_later_one_of_their_key_go(codec: CompressionType, kept: list[int]) -> None:
    batch = batch_of((11, b"a", b"1"), (19, b"b", b"2"), (12, b"c", b"3"), compression_type=codec, partition_leader_epoch=7)
    offsets = {key: offset if offset in kept else 99 for offset, key in ((3, b"a"), (4, b"b"), (5, b"c"))}
    filtered, header = run(batch_filter(offsets), batch)
    expected = [record for record in records(batch) if record[0] in kept]
    assert records(filtered.data) == expected
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (3, 5, 7)
    assert header.compression_type is codec
    assert header.max_timestamp == max(record[1] for record in expected)


def test_log_append_time_is_kept() -> None:
    batch = batch_of((11, b"a", b"1"), (12, b"b", b"2"), timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=500)
    filtered, header = run(batch_filter({b"a": 3, b"b": 99}), batch)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 500)
    assert records(filtered.data) == [(3, 500, b"a", b"1")]


def test_a_record_without_a_key_goes_and_is_counted_and_what_the_map_does_not_have_stays() -> None:
    """Kafka: LogCleanerTest.testCleaningWithUnkeyedMessages."""
    filtering = batch_filter({b"a": 99}, latest=5)
    filtered, _ = run(filtering, batch_of((1, None, b"1"), (1, b"a", b"2"), (1, b"b", b"3"), (1, None, b"4")))
    assert [record[0] for record in records(filtered.data)] == [5, 6]
    assert filtering.keyless_records == 1


IDEMPOTENT: dict[str, Any] = {"producer_id": 23, "producer_epoch": 5, "base_sequence": 10}


def test_the_last_batch_of_a_producer_stays_as_an_empty_header() -> None:
    """Kafka: MemoryRecordsTest.testFilterToEmptyBatchRetention, testEmptyBatchRetention."""
    batch = batch_of((11, b"a", b"1"), (12, b"b", b"2"), **IDEMPOTENT)
    filtered, header = run(batch_filter({b"a": 99, b"b": 99}, last_records={23: LastRecord(5, 4)}), batch)
    assert (len(filtered.data), header.records_count, header.max_timestamp) == (61, 0, 12)
    assert (header.base_offset, header.last_offset, header.base_sequence, header.last_sequence) == (3, 4, 10, 11)
    assert (header.producer_id, header.producer_epoch) == (23, 5)
    again, _ = run(batch_filter({}, last_records={23: LastRecord(5, 4)}), bytes(filtered.data))
    assert again.data == filtered.data


def test_an_empty_batch_goes_when_its_producer_has_a_later_one() -> None:
    """Kafka: MemoryRecordsTest.testEmptyBatchDeletion."""
    batch = batch_of((11, b"a", b"1"), **IDEMPOTENT)
    empty, _ = run(batch_filter({b"a": 99}, last_records={23: LastRecord(5, 3)}), batch)
    for last_records in ({23: LastRecord(5, 8)}, {}, {23: LastRecord(5, None)}, {24: LastRecord(5, 3)}):
        assert goes(batch_filter({}, last_records=last_records), bytes(empty.data))


def test_retained_delete_horizon_goes_with_the_records() -> None:
    """Kafka: DefaultRecordBatch.writeEmptyHeader."""
    batch = batch_of((11, b"a", None), delete_horizon_ms=5)
    _, header = run(batch_filter({b"a": 3}, end_offset=4), batch)
    assert (header.has_delete_horizon, header.base_timestamp) == (False, -1)


@CODECS
def test_a_first_seen_tombstone_gets_a_delete_horizon_and_timestamps_stay(codec: CompressionType) -> None:
    """Kafka: MemoryRecordsTest.testBaseTimestampToDeleteHorizonConversion."""
    batch = batch_of((5, b"a", b"1"), (10, b"b", None), (15, b"c", b"3"), compression_type=codec)
    filtered, header = run(batch_filter({b"a": 3, b"b": 4, b"c": 5}, delete_retention_ms=1), batch)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + 1
    assert records(filtered.data) == records(batch)
    assert header.max_timestamp == 15


def test_a_horizon_counts_from_the_first_cleaning_and_not_from_the_record() -> None:
    """Kafka: LogCleanerTest.testCleanTombstone."""
    filtered, header = run(batch_filter({b"b": 3}), batch_of((0, b"b", None)))
    assert header.base_timestamp == NOW + 50
    later, _ = run(batch_filter({b"b": 3}, now_ms=NOW + 49), bytes(filtered.data))
    assert later.data == filtered.data
    assert goes(batch_filter({b"b": 3}, now_ms=NOW + 50), bytes(filtered.data))
    assert goes(batch_filter({b"b": 99}), batch_of((0, b"b", None))), "superseded it goes at once"


def test_a_clock_that_is_not_trusted_sets_no_horizon_and_passes_none() -> None:
    tombstone = batch_of((0, b"b", None))
    filtered, header = run(batch_filter({b"b": 3}, now_ms=NO_TIMESTAMP), tombstone)
    assert not header.has_delete_horizon
    dated, _ = run(batch_filter({b"b": 3}), bytes(filtered.data))
    kept, header = run(batch_filter({b"b": 3}, now_ms=NO_TIMESTAMP), bytes(dated.data))
    assert (kept.data, header.base_timestamp) == (dated.data, NOW + 50)
    assert goes(batch_filter({b"b": 99}, now_ms=NO_TIMESTAMP), tombstone), "superseded it goes at once"


def test_an_existing_horizon_stays_when_records_go() -> None:
    builder = BatchBuilder(base_offset=3, delete_horizon_ms=2000)
    for offset, key in enumerate((b"a", b"b"), 3):
        builder.append_at(offset, 100 + offset, key, None)
    filtered, header = run(batch_filter({b"a": 99, b"b": 4}), builder.build())
    assert (header.has_delete_horizon, header.base_timestamp) == (True, 2000)
    assert records(filtered.data) == [(4, 104, b"b", None)]


def marker(offset: int, *, commit: bool, producer_id: int = 23) -> bytes:
    return end_txn_marker(
        producer_id=producer_id, producer_epoch=5, commit=commit, timestamp=77, coordinator_epoch=1, base_offset=offset
    )


TRANSACTIONAL: dict[str, Any] = {**IDEMPOTENT, "is_transactional": True}
ABORTED = AbortedTxn(23, 3, 9, 3)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_without_its_transaction_gets_a_horizon_and_goes_after_it(commit: bool) -> None:
    """Kafka: LogCleanerTest.testCommitMarkerRemoval, testAbortMarkerRemoval."""
    filtering = batch_filter({}, aborted=() if commit else (ABORTED,))
    kept, header = run(filtering, marker(9, commit=commit))
    assert (header.base_timestamp, header.max_timestamp) == (NOW + 50, 77)
    assert [record.timestamp for record in iter_records(kept.data)] == [77]
    assert filtering.transactions.take_cleaned_index() == []
    assert run(batch_filter({}, now_ms=NOW + 49), bytes(kept.data))[0].data == kept.data
    assert goes(batch_filter({}, now_ms=NOW + 50), bytes(kept.data))


def test_the_last_marker_of_a_producer_without_data_stays_empty() -> None:
    """The producer's epoch must not be forgotten."""
    kept, _ = run(batch_filter({}), marker(9, commit=True))
    late = {"now_ms": NOW + 50, "last_records": {23: LastRecord(5, None)}}
    filtered, header = run(batch_filter({}, **late), bytes(kept.data))
    assert (len(filtered.data), header.is_control, header.is_transactional, header.producer_epoch) == (61, True, True, 5)
    assert goes(batch_filter({}, last_records={23: LastRecord(6, None)}), bytes(filtered.data))


def test_other_control_batches_stay() -> None:
    builder = BatchBuilder(base_offset=3, is_control=True)
    builder.append(1, b"\0\0\0\2", b"")
    batch = builder.build()
    assert run(batch_filter({}), batch)[0].data == batch


def data_header(offset: int) -> BatchHeader:
    return parse_header(batch_of((0, b"k", b"v"), **(TRANSACTIONAL | {"producer_id": 1})))._replace(base_offset=offset)


def end_with_marker(transactions: CleanedTransactions, offset: int, *, commit: bool) -> bool:
    data = marker(offset, commit=commit, producer_id=1)
    return transactions.on_control_batch(parse_header(data), data)


@pytest.mark.parametrize("markers_between", [0, 1])
def test_a_transaction_whose_marker_is_lost_ends_where_the_index_says(markers_between: int) -> None:
    """Damage took the ABORT marker at 4 out; what the producer wrote afterwards was committed and stays."""
    transactions = CleanedTransactions()
    transactions.add_aborted([AbortedTxn(1, 2, 4, 5)])
    assert transactions.on_data_batch(data_header(2))
    for offset in range(5, 5 + markers_between):
        end_with_marker(transactions, offset, commit=True)
    assert not transactions.on_data_batch(data_header(7))
    assert not end_with_marker(transactions, 8, commit=True), "a record of its transaction is there"


RECORD = st.tuples(
    st.integers(1, 1 << 20),
    st.integers(-1, 1 << 50),
    st.one_of(st.none(), st.binary(max_size=300)),
    st.one_of(st.none(), st.binary(max_size=300)),
    st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2),
)


@given(st.lists(RECORD, min_size=1, max_size=6), st.one_of(st.none(), st.integers(0, 1 << 50)))
def test_spans_are_the_records(
    entries: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], horizon: int | None
) -> None:
    builder = BatchBuilder(base_offset=7, delete_horizon_ms=horizon)
    offset = 6
    for gap, timestamp, key, value, headers in entries:
        offset += gap
        builder.append_at(offset, timestamp, key, value, headers)
    batch = builder.build(last_offset=offset + 3)
    header = parse_header(batch)
    data = batch[RECORD_BATCH_OVERHEAD:]
    spans = record_spans(data, header)
    assert [
        (7 + span.offset_delta, header.base_timestamp + span.timestamp_delta, span.key, span.has_value) for span in spans
    ] == [(record.offset, record.timestamp, record.key, record.value is not None) for record in iter_records(batch, header)]
    assert b"".join(data[span.start : span.stop] for span in spans) == data
    assert [span.start for span in spans] == [0, *(span.stop for span in spans[:-1])]


@given(st.data())
def test_garbage_is_an_invalid_record_and_nothing_else(drawn: st.DataObject) -> None:
    batch = build_batch([(number, b"key", b"value" * 3, ()) for number in range(4)])
    header = parse_header(batch)
    data = bytearray(batch[RECORD_BATCH_OVERHEAD:])
    for position in drawn.draw(st.lists(st.integers(0, len(data) - 1), max_size=4)):
        data[position] = drawn.draw(st.integers(0, 255))
    end = drawn.draw(st.integers(0, len(data)))
    try:
        spans = record_spans(bytes(data[:end]), header)
    except InvalidRecordError:
        return
    assert len(spans) == header.records_count


def test_a_batch_that_counts_more_than_it_has_is_refused() -> None:
    batch = build_batch([(1, b"k", b"v", ())])
    header = parse_header(batch)._replace(records_count=2, last_offset_delta=1)
    with pytest.raises(InvalidRecordError):
        record_spans(batch[RECORD_BATCH_OVERHEAD:], header)
    with pytest.raises(InvalidRecordError):
        record_spans(batch[RECORD_BATCH_OVERHEAD:] * 2, header)
