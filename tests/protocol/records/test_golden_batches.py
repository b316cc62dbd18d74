"""Batches that Apache Kafka 4.1.0 stored: every one is read, and says what Kafka's own consumer read from it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest
from triolog.protocol.records.batch import BatchHeader, check_batch, iter_batches, with_timestamp
from triolog.protocol.records.builder import BatchBuilder
from triolog.protocol.records.control import ControlRecordType, control_record_type
from triolog.protocol.records.record import first_record_at, iter_records, walk_records
from triolog.protocol.types import CompressionType, Record, TimestampType

from tests.support.golden import GOLDEN

CODECS: Final = {
    "codec-none": CompressionType.NONE,
    "codec-gzip": CompressionType.GZIP,
    "codec-snappy": CompressionType.SNAPPY,
    "codec-lz4": CompressionType.LZ4,
    "codec-zstd": CompressionType.ZSTD,
}
PARTITIONS: Final = sorted(path for path in GOLDEN.glob("*clean/*-[0-9]") if path.is_dir())
EXPECTED: Final[dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text())


def partition_id(path: Path) -> str:
    return f"{path.parent.name}-{path.name}"


def stored_batches(partition: Path) -> list[tuple[BatchHeader, memoryview]]:
    return [found for log in sorted(partition.glob("*.log")) for found in iter_batches(log.read_bytes())]


def answers(partition: Path) -> dict[str, Any]:
    """What Kafka answered about this partition."""
    topic, _, number = partition.name.rpartition("-")
    answered: dict[str, Any] = EXPECTED[topic]["partitions"][number]
    return answered


def expected_records(partition: Path) -> list[Record]:
    return [
        Record(
            offset,
            timestamp,
            key if key is None else base64.b64decode(key),
            value if value is None else base64.b64decode(value),
            tuple((name, content if content is None else base64.b64decode(content)) for name, content in headers),
        )
        for offset, _, timestamp, key, value, headers in answers(partition)["records"]
    ]


def test_the_golden_data_is_there() -> None:
    assert len(PARTITIONS) >= 2 * len(CODECS)


@pytest.mark.parametrize("partition", PARTITIONS, ids=partition_id)
def test_every_stored_byte_belongs_to_a_batch_with_a_true_checksum(partition: Path) -> None:
    batches = stored_batches(partition)
    for header, batch in batches:
        check_batch(batch, header)
    assert sum(header.size_bytes for header, _ in batches) == sum(log.stat().st_size for log in partition.glob("*.log"))


@pytest.mark.parametrize("partition", PARTITIONS, ids=partition_id)
def test_records_are_those_that_kafka_s_consumer_read(partition: Path) -> None:
    log_start_offset, _ = answers(partition)["read_uncommitted"]["earliest"]
    read = [
        record
        for header, batch in stored_batches(partition)
        if not header.is_control
        for record in iter_records(batch, header)
        if record.offset >= log_start_offset
    ]
    assert read == expected_records(partition)


@pytest.mark.parametrize("partition", PARTITIONS, ids=partition_id)
def test_a_walk_agrees_with_the_header_that_kafka_wrote(partition: Path) -> None:
    for header, batch in stored_batches(partition):
        walk = walk_records(batch, header, allow_gaps=True)
        assert walk.records_count == header.records_count
        if walk.records_count:
            assert walk.max_timestamp == header.max_timestamp
        if walk.records_count == header.last_offset_delta + 1:
            assert walk_records(batch, header) == walk


@pytest.mark.parametrize("partition", PARTITIONS, ids=partition_id)
def test_the_first_record_at_each_timestamp_is_what_a_scan_finds(partition: Path) -> None:
    for header, batch in stored_batches(partition):
        records = list(iter_records(batch, header))
        for asked in {record.timestamp for record in records}:
            scanned = next((record.offset, record.timestamp) for record in records if record.timestamp >= asked)
            assert first_record_at(batch, header, timestamp=asked, min_offset=0) == scanned


@pytest.mark.parametrize("topic", CODECS)
def test_each_codec_s_topic_really_has_that_codec(topic: str) -> None:
    for instance in ("clean", "unclean"):
        batches = stored_batches(GOLDEN / instance / f"{topic}-0")
        assert {header.compression_type for header, _ in batches} == {CODECS[topic]}


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


@pytest.mark.parametrize("partition", PARTITIONS, ids=partition_id)
def test_rebuilding_an_uncompressed_batch_gives_kafka_s_bytes(partition: Path) -> None:
    for header, batch in stored_batches(partition):
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
            assert builder.build(last_offset=header.last_offset) == batch
