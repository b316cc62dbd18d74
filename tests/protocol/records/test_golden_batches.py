"""Batches that Apache Kafka 4.1.0 stored. `server/storage/test_golden.py` has their records beside those of a consumer."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from triolog.protocol.records.batch import BatchHeader, check_batch, iter_batches, with_timestamp
from triolog.protocol.records.builder import BatchBuilder
from triolog.protocol.records.control import ControlRecordType, control_record_type
from triolog.protocol.records.record import iter_records
from triolog.protocol.records.walk import walk_records
from triolog.protocol.types import CompressionType, TimestampType

from tests.support.golden import GOLDEN

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
