"""The batch header: its fields, its framing in a stream, its checksum, and the changes that keep or need a new one.
Batches that Apache Kafka 4.1.0 stored. `server/storage/test_golden.py` has their records beside those of a consumer.
CRC-32C by the compiled package and in Python: the published check values, that both agree, and that it can be continued.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import CorruptRecordError, UnsupportedCompressionTypeError
from triolog.protocol.limits import INT32_MAX
from triolog.protocol.records import checksum, pure_checksum
from triolog.protocol.records.batch import (
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    check_batch,
    decrement_sequence,
    empty_batch_header,
    end_txn_marker,
    increment_sequence,
    iter_batches,
    parse_header,
    stamp,
    with_timestamp,
)
from triolog.protocol.records.builder import BatchBuilder, build_batch
from triolog.protocol.records.control import ControlRecordType, control_record_type, coordinator_epoch
from triolog.protocol.records.record import iter_records
from triolog.protocol.records.walk import walk_records
from triolog.protocol.types import CompressionType, TimestampType

from tests.support.golden import GOLDEN
from tests.support.record_batches import damaged, patched

THREE = build_batch([(1, b"a", b"1", ()), (2, b"b", b"2", ()), (3, b"c", b"3", ())])
ONE = build_batch([(5, None, b"test", ())], base_offset=40)


def checked(batch: bytes | bytearray) -> BatchHeader:
    """Parse the header and check the batch against it."""
    header = parse_header(batch)
    check_batch(memoryview(batch), header)
    return header


def test_a_header_gives_back_what_the_batch_was_built_with() -> None:
    batch = build_batch(
        [(1, None, None, ()), (2, None, None, ())],
        base_offset=1234567,
        partition_leader_epoch=9,
        producer_id=2**40,
        producer_epoch=7,
        base_sequence=983,
        is_transactional=True,
    )
    header = checked(batch)
    assert header.size_bytes == len(batch) == header.batch_length + 12
    assert (header.base_offset, header.last_offset, header.next_offset) == (1234567, 1234568, 1234569)
    assert (header.partition_leader_epoch, header.magic, header.records_count) == (9, 2, 2)
    assert (header.base_timestamp, header.max_timestamp) == (1, 2)
    assert (header.producer_id, header.producer_epoch) == (2**40, 7)
    assert (header.base_sequence, header.last_sequence) == (983, 984)
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (True, False, False)
    assert header.has_producer_id


def test_a_batch_of_no_producer_has_no_sequences() -> None:
    """Kafka: DefaultRecordBatchTest.buildDefaultRecordBatch."""
    header = checked(build_batch([(1, b"a", b"v", ()), (2, b"b", b"v", ())], base_offset=1234567))
    assert (header.max_timestamp, header.producer_id, header.producer_epoch) == (2, -1, -1)
    assert (header.base_sequence, header.last_sequence, header.has_producer_id) == (-1, -1, False)


@pytest.mark.parametrize("timestamp_type", TimestampType)
@pytest.mark.parametrize("is_transactional", [True, False])
@pytest.mark.parametrize("is_control", [True, False])
def test_an_empty_batch_keeps_offsets_and_sequences(
    timestamp_type: TimestampType, is_transactional: bool, is_control: bool
) -> None:
    """Kafka: DefaultRecordBatchTest.testWriteEmptyHeader."""
    batch = empty_batch_header(
        base_offset=15,
        last_offset=37,
        max_timestamp=123456,
        timestamp_type=timestamp_type,
        partition_leader_epoch=15,
        producer_id=23423,
        producer_epoch=145,
        base_sequence=983,
        is_transactional=is_transactional,
        is_control=is_control,
    )
    header = checked(batch)
    assert len(batch) == RECORD_BATCH_OVERHEAD
    assert (header.base_offset, header.last_offset, header.last_sequence) == (15, 37, 1005)
    assert (header.base_timestamp, header.max_timestamp, header.records_count) == (-1, 123456, 0)
    assert (header.producer_id, header.producer_epoch, header.partition_leader_epoch) == (23423, 145, 15)
    assert header.timestamp_type is timestamp_type
    assert (header.is_transactional, header.is_control) == (is_transactional, is_control)
    assert not header.has_delete_horizon
    assert list(iter_records(batch)) == []


@pytest.mark.parametrize(("commit", "expected"), [(True, ControlRecordType.COMMIT), (False, ControlRecordType.ABORT)])
def test_an_end_txn_marker_is_one_control_record(commit: bool, expected: ControlRecordType) -> None:
    """Kafka: MemoryRecordsTest.testBuildEndTxnMarker. The batch is made whole, so it cannot lack either attribute as in
    MemoryRecordsBuilderTest.testWriteEndTxnMarkerNonTransactionalBatch, testWriteEndTxnMarkerNonControlBatch."""
    batch = end_txn_marker(
        producer_id=73,
        producer_epoch=13,
        commit=commit,
        timestamp=99,
        coordinator_epoch=347,
        base_offset=983,
        partition_leader_epoch=29,
    )
    header = checked(batch)
    assert len(batch) == 78
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (73, 13, -1)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (983, 983, 29)
    assert header.attributes == 0x30
    (record,) = iter_records(batch, header)
    assert (record.offset, record.timestamp) == (983, 99)
    assert control_record_type(record.key) is expected
    assert coordinator_epoch(record.value) == 347


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, 0), (1, -1)])
def test_an_end_txn_marker_needs_a_producer(producer_id: int, producer_epoch: int) -> None:
    with pytest.raises(ValueError, match="needs a producer"):
        end_txn_marker(producer_id=producer_id, producer_epoch=producer_epoch, commit=True, timestamp=1, coordinator_epoch=0)


@pytest.mark.parametrize("compression_id", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(compression_id: int) -> None:
    batch = patched(ONE, attributes=compression_id)
    with pytest.raises(UnsupportedCompressionTypeError, match=f"codec {compression_id}"):
        _ = parse_header(batch).compression_type
    with pytest.raises(UnsupportedCompressionTypeError):
        list(iter_records(batch))


def test_a_batch_with_another_length_than_its_header_says_is_corrupt() -> None:
    """Kafka: DefaultRecordBatchTest.testInvalidRecordSize."""
    header = parse_header(ONE)
    with pytest.raises(CorruptRecordError, match="has 71 bytes, its header says 72"):
        check_batch(memoryview(ONE)[:-1], header)
    too_small = patched(ONE, batch_length=10)
    with pytest.raises(CorruptRecordError, match="smallest possible is 61"):
        check_batch(memoryview(too_small)[:22], parse_header(too_small))


@given(st.data())
def test_any_changed_byte_behind_the_checksum_is_noticed(data: st.DataObject) -> None:
    """Kafka: DefaultRecordBatchTest.testInvalidCrc."""
    changed = bytearray(THREE)
    position = data.draw(st.integers(17, len(THREE) - 1))
    changed[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRecordError, match="carries CRC"):
        checked(changed)


@given(st.integers(0, 2**62), st.integers(-1, 2**31 - 1))
def test_a_stamp_changes_offsets_and_epoch_and_keeps_the_checksum(base_offset: int, epoch: int) -> None:
    """Kafka: DefaultRecordBatchTest.testSetLastOffset."""
    changed = stamp(base_offset, parse_header(THREE), epoch) + THREE[16:]
    header = checked(changed)
    assert (header.base_offset, header.last_offset) == (base_offset, base_offset + 2)
    assert header.partition_leader_epoch == epoch
    assert [record.offset for record in iter_records(changed)] == [base_offset, base_offset + 1, base_offset + 2]


def test_append_time_is_reported_for_every_record() -> None:
    """Kafka: DefaultRecordBatchTest.testSetLogAppendTime."""
    changed = with_timestamp(THREE, TimestampType.LOG_APPEND_TIME, 15)
    header = checked(changed)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 15)
    assert header.base_timestamp == 1
    assert [record.timestamp for record in iter_records(changed)] == [15, 15, 15]
    assert with_timestamp(changed, TimestampType.CREATE_TIME, 3) == THREE


def test_a_timestamp_that_is_already_there_changes_nothing_not_even_unknown_attributes() -> None:
    batch = patched(THREE, attributes=0x0700)
    assert with_timestamp(batch, TimestampType.CREATE_TIME, 3) == batch
    assert parse_header(with_timestamp(batch, TimestampType.CREATE_TIME, 4)).attributes == 0


@pytest.mark.parametrize("attributes", [0x10, 0x20, 0x40, 0x04])
def test_a_new_timestamp_keeps_the_other_attributes(attributes: int) -> None:
    changed = with_timestamp(patched(THREE, attributes=attributes), TimestampType.LOG_APPEND_TIME, 15)
    assert checked(changed).attributes == attributes | 0x08


@pytest.mark.parametrize(
    ("sequence", "count", "expected"),
    [(0, 0, 0), (5, 3, 8), (INT32_MAX, 1, 0), (INT32_MAX - 1, 1, INT32_MAX), (INT32_MAX, INT32_MAX, INT32_MAX - 1)],
)
def test_sequences_start_again_at_zero(sequence: int, count: int, expected: int) -> None:
    assert increment_sequence(sequence, count) == expected
    assert decrement_sequence(expected, count) == sequence


def test_last_sequence_wraps() -> None:
    batch = build_batch([(1, None, None, ())] * 3, producer_id=1, producer_epoch=0, base_sequence=INT32_MAX - 1)
    assert parse_header(batch).last_sequence == 0


def test_batches_are_found_one_after_the_other_up_to_an_incomplete_one() -> None:
    zstd = build_batch([(1, None, b"x" * 50, ())], compression_type=CompressionType.ZSTD)
    found = list(iter_batches(THREE + ONE + zstd))
    assert [bytes(batch) for _, batch in found] == [THREE, ONE, zstd]
    assert [header for header, _ in found] == [parse_header(batch) for batch in (THREE, ONE, zstd)]
    for kept in range(len(ONE)):
        assert [bytes(batch) for _, batch in iter_batches(THREE + ONE[:kept])] == [THREE], kept


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"magic": 0}, f"position {len(THREE)}: legacy message format, magic 0, is unsupported. Expected magic 2"),
        ({"magic": 1, "batch_length": 20}, f"position {len(THREE)}: legacy message format, magic 1"),
        ({"magic": 3}, f"position {len(THREE)}: magic is 3, expected 2"),
        ({"magic": -1}, f"position {len(THREE)}: magic is -1, expected 2"),
        ({"batch_length": 48}, f"position {len(THREE)}: batch length is 48, expected at least 49"),
        ({"batch_length": -5}, f"position {len(THREE)}: batch length is -5, expected at least 49"),
    ],
)
def test_what_cannot_start_a_batch_is_corrupt(fields: dict[str, int], message: str) -> None:
    walk = iter_batches(THREE + patched(ONE, **fields))
    assert bytes(next(walk)[1]) == THREE
    with pytest.raises(CorruptRecordError) as caught:
        next(walk)
    assert message in caught.value.message


@pytest.mark.parametrize(("kept", "fields"), [(12, {"batch_length": 48}), (17, {"magic": 1}), (60, {"magic": 9})])
def test_a_short_tail_that_cannot_start_a_batch_is_corrupt_too(kept: int, fields: dict[str, int]) -> None:
    with pytest.raises(CorruptRecordError):
        list(iter_batches(patched(ONE, **fields)[:kept]))


@given(st.one_of(st.binary(max_size=200), damaged(THREE + ONE)))
def test_any_bytes_are_batches_a_tail_or_corrupt(data: bytes) -> None:
    position = 0
    stated = ""
    try:
        for header, batch in iter_batches(data):
            assert bytes(batch) == data[position : position + header.size_bytes]
            position += header.size_bytes
    except CorruptRecordError as error:
        stated = error.message
    assert position <= len(data)
    assert stated.startswith(f"position {position}:") or not stated


CODECS: Final = {
    "codec-none": CompressionType.NONE,
    "codec-gzip": CompressionType.GZIP,
    "codec-snappy": CompressionType.SNAPPY,
    "codec-lz4": CompressionType.LZ4,
    "codec-zstd": CompressionType.ZSTD,
}
PARTITIONS: Final = sorted(path for path in GOLDEN.glob("*clean/*-[0-9]") if path.is_dir())


def stored_batches(partition: Path) -> list[tuple[BatchHeader, memoryview]]:
    return [found for log in sorted(partition.glob("*.log")) for found in iter_batches(log.read_bytes())]


def test_every_stored_byte_belongs_to_a_batch_that_is_what_its_header_says() -> None:
    assert len(PARTITIONS) >= 2 * len(CODECS)
    for partition in PARTITIONS:
        batches = stored_batches(partition)
        assert sum(header.size_bytes for header, _ in batches) == sum(log.stat().st_size for log in partition.glob("*.log"))
        for header, batch in batches:
            check_batch(batch, header)
            walk = walk_records(batch, header, allow_gaps=True)
            assert walk.records_count == header.records_count, (partition, header)
            if walk.records_count:
                assert walk.max_timestamp == header.max_timestamp, (partition, header)
            if walk.records_count == header.last_offset_delta + 1:
                assert walk_records(batch, header) == walk, (partition, header)


def test_each_codec_s_topic_really_has_that_codec() -> None:
    for topic, codec in CODECS.items():
        for instance in ("clean", "unclean"):
            batches = stored_batches(GOLDEN / instance / f"{topic}-0")
            assert {header.compression_type for header, _ in batches} == {codec}, (topic, instance)


def test_control_batches_are_there_and_say_commit_or_abort() -> None:
    types = {
        control_record_type(record.key)
        for header, batch in stored_batches(GOLDEN / "clean" / "txn-0")
        if header.is_control
        for record in iter_records(batch, header)
    }
    assert types == {ControlRecordType.COMMIT, ControlRecordType.ABORT}


def test_append_time_batches_are_there_and_survive_being_stamped_twice() -> None:
    for header, batch in stored_batches(GOLDEN / "clean" / "append-time-0"):
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        away = with_timestamp(batch, TimestampType.CREATE_TIME, 0)
        assert with_timestamp(away, TimestampType.LOG_APPEND_TIME, header.max_timestamp) == batch


def test_rebuilding_an_uncompressed_batch_gives_kafka_s_bytes() -> None:
    for header, batch in (found for partition in PARTITIONS for found in stored_batches(partition)):
        if header.compression_type != CompressionType.NONE or header.timestamp_type != TimestampType.CREATE_TIME:
            continue
        builder = BatchBuilder(
            base_offset=header.base_offset,
            partition_leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            delete_horizon_ms=header.base_timestamp if header.has_delete_horizon else None,
        )
        for record in iter_records(batch, header):
            builder.append_at(record.offset, record.timestamp, record.key, record.value, record.headers)
        if header.records_count and not (header.is_transactional and header.is_control):
            assert builder.build(last_offset=header.last_offset) == batch, header


Checksum = Callable[..., int]
both = pytest.mark.parametrize("crc32c", [checksum.crc32c, pure_checksum.crc32c], ids=["compiled", "pure"])


@both
@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)],
)
def test_published_check_values_hold(crc32c: Checksum, data: bytes, expected: int) -> None:
    assert crc32c(data) == crc32c(memoryview(data)) == crc32c(bytearray(data)) == expected


@both
@given(first=st.binary(), second=st.binary())
def test_a_checksum_continued_equals_the_checksum_of_both_parts(crc32c: Checksum, first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


def test_this_machine_has_the_compiled_package() -> None:
    assert checksum.crc32c is not pure_checksum.crc32c


PIECE = pure_checksum.PIECE_BYTES


@pytest.mark.parametrize("sizes", [range(700), range(PIECE - 40, PIECE + 40), range(PIECE * 2, PIECE * 2 + 260, 13)])
def test_both_agree_on_every_length_at_which_something_changes(sizes: range) -> None:
    """The table alone, folds of each size, a piece and its rest."""
    data = random.Random(sizes.start).randbytes(sizes.stop)
    for size in sizes:
        view, crc = memoryview(data)[-size or len(data) :], size * 0x9E3779B9 & 0xFFFFFFFF
        assert pure_checksum.crc32c(view, crc) == checksum.crc32c(view, crc), size


@pytest.mark.parametrize("byte", [b"\0", b"\xff", b"\x80", b"\x01"])
def test_both_agree_on_long_runs_of_a_byte(byte: bytes) -> None:
    data = byte * (PIECE + 1000)
    assert pure_checksum.crc32c(data) == checksum.crc32c(data)
