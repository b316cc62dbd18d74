"""What compaction leaves of a batch (Kafka: MemoryRecords.filterTo, Cleaner.cleanInto).

A record stays when its key has no later record, and when it has a value or its tombstone's time has not come. Offsets never
change and order is kept, so a batch keeps its base offset, last offset, producer, sequence, epoch, codec and timestamp type.

| the batch | is |
|---|---|
| loses nothing | copied byte for byte |
| loses some records | put together again from the bytes of those that stay; compressed again if it was |
| shows a tombstone that stays, or a marker whose transaction is gone, for the first time | given a delete horizon |
| loses all records, and is the last batch of an active producer, or of the range | left as an empty header of 61 bytes |
| loses all records otherwise | gone |

The delete horizon is now + delete.retention.ms. It takes the place of the base timestamp, and the timestamp deltas of the
records become relative to it. The empty header keeps a producer's sequence, or the last offset.

A producer's last batch may lie above the recovery point, where a power cut takes it: then the last one below stays too, because
it is what is known of the producer afterwards. Where the log does not remember which one that is, those that may be it stay.

Where Kafka makes the first remaining record's timestamp the base timestamp, the old base timestamp stays: every record has the
timestamp that it had, and its bytes too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import attrs

from ....protocol.limits import MAX_DECOMPRESSED_BYTES
from ....protocol.records.batch import (
    DELETE_HORIZON_FLAG,
    BatchHeader,
    assemble_batch,
    check_batch,
    empty_batch_header,
)
from ....protocol.records.compression import compress
from ....protocol.records.unpacking import records_data
from ....protocol.records.varint import encode_varint, encode_varlong
from ....protocol.types import NO_OFFSET, NO_TIMESTAMP, Bytes, CompressionType, TimestampType
from .offset_map import OffsetMap
from .record_spans import RecordSpan, record_spans
from .transactions import CleanedTransactions

KNOWN_ATTRIBUTES: Final = 0x7F
"""Bits 0 to 6; what a batch carries beyond is dropped when it is put together again, as Kafka does."""


class LastRecord(NamedTuple):
    """What the log knows of an active producer: its epoch, and the last offset of its last batch (None: it has no data).

    `synced_offset`: the same of its last batch below the recovery point, where that is another one; -1: there is none to be
    kept, None: the log does not remember it.
    """

    producer_epoch: int
    last_data_offset: int | None
    synced_offset: int | None = NO_OFFSET


class FilteredBatch(NamedTuple):
    """A batch after the filter: its bytes (none: it is gone), and its largest timestamp."""

    data: Bytes
    max_timestamp: int


@attrs.frozen(kw_only=True)
class RetentionRules:
    """By what a round judges. `end_offset`: where the round's range ends, exclusive."""

    now_ms: int
    delete_retention_ms: int
    end_offset: int
    last_records: Mapping[int, LastRecord] = attrs.field(factory=dict)
    newest_dirty: Mapping[int, int] = attrs.field(factory=dict)
    """Last offset of the newest batch in the dirty part, by producer, of those whose `synced_offset` is not remembered."""
    compression_levels: Mapping[CompressionType, int] = attrs.field(factory=dict)
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES


@attrs.define(eq=False, repr=False)
class BatchFilter:
    """Filters batches in the order of the log. Owner: one pass."""

    rules: RetentionRules
    offsets: OffsetMap
    transactions: CleanedTransactions
    keyless_records: int = 0
    """Dropped because nothing could ever replace them; a compacted topic accepts none."""

    def filter(self, header: BatchHeader, batch: memoryview) -> FilteredBatch:
        """What stays of a batch. Raises CorruptRecordError or InvalidRecordError for damage, which is never copied."""
        check_batch(batch, header)
        if header.is_control:
            is_last_trace = self.transactions.on_control_batch(header, batch)
            has_expired = header.has_delete_horizon and header.base_timestamp <= self.rules.now_ms
            if not header.records_count or (is_last_trace and has_expired):
                return self._without_records(header)
            if not is_last_trace or header.has_delete_horizon:
                return FilteredBatch(batch, header.max_timestamp)
        elif self.transactions.on_data_batch(header):
            return self._without_records(header)
        data = records_data(batch, header, self.rules.max_decompressed_bytes)
        spans = record_spans(data, header)
        if header.is_control:
            return self._with_delete_horizon(header, data, spans)
        kept = self._kept(header, spans)
        if not kept:
            return self._without_records(header)
        if not header.has_delete_horizon and not all(span.has_value for span in kept):
            return self._with_delete_horizon(header, data, kept)
        if len(kept) == len(spans):
            return FilteredBatch(batch, header.max_timestamp)
        return self._assembled(header, _joined(data, kept), kept)

    def _kept(self, header: BatchHeader, spans: list[RecordSpan]) -> list[RecordSpan]:
        base_offset, latest_offset, last_offset_of = header.base_offset, self.offsets.latest_offset, self.offsets.get
        if base_offset > latest_offset:
            return spans
        tombstones_stay = not header.has_delete_horizon or self.rules.now_ms < header.base_timestamp
        kept: list[RecordSpan] = []
        for span in spans:
            _, _, _, _, offset_delta, key, has_value = span
            offset = base_offset + offset_delta
            if offset > latest_offset:
                kept.append(span)
            elif key is None:
                self.keyless_records += 1
            elif (has_value or tombstones_stay) and offset >= last_offset_of(key):
                kept.append(span)
        return kept

    def _without_records(self, header: BatchHeader) -> FilteredBatch:
        """Nothing, or the empty header that keeps a producer's sequence or the last offset of the range."""
        if header.next_offset != self.rules.end_offset and not self._is_last_of_producer(header):
            return FilteredBatch(b"", NO_TIMESTAMP)
        data = empty_batch_header(
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp,
            timestamp_type=header.timestamp_type,
            partition_leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
        )
        return FilteredBatch(data, header.max_timestamp)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.rules.last_records.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if not header.is_control and self._is_last_on_device(header, last):
            return True
        if last.last_data_offset is None:
            return header.is_control and header.producer_epoch == last.producer_epoch
        return header.last_offset == last.last_data_offset

    def _is_last_on_device(self, header: BatchHeader, last: LastRecord) -> bool:
        if last.synced_offset is None:
            return header.last_offset >= self.rules.newest_dirty.get(header.producer_id, NO_OFFSET)
        return header.last_offset == last.synced_offset

    def _with_delete_horizon(self, header: BatchHeader, data: bytes, kept: list[RecordSpan]) -> FilteredBatch:
        horizon = self.rules.now_ms + self.rules.delete_retention_ms
        shift = header.base_timestamp - horizon
        parts: list[Bytes] = []
        for span in kept:
            timestamp_delta = encode_varlong(span.timestamp_delta + shift)
            length = 1 + len(timestamp_delta) + span.stop - span.body
            parts += (encode_varint(length), b"\0", timestamp_delta, data[span.body : span.stop])
        horizon_header = header._replace(attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=horizon)
        moved = [span._replace(timestamp_delta=span.timestamp_delta + shift) for span in kept]
        return self._assembled(horizon_header, b"".join(parts), moved)

    def _assembled(self, header: BatchHeader, records: bytes, kept: list[RecordSpan]) -> FilteredBatch:
        max_timestamp = header.max_timestamp
        if header.timestamp_type is TimestampType.CREATE_TIME:
            max_timestamp = header.base_timestamp + max(span.timestamp_delta for span in kept)
        codec = header.compression_type
        if codec is not CompressionType.NONE:
            records = compress(codec, records, self.rules.compression_levels.get(codec))
        data = assemble_batch(
            records,
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
            records_count=len(kept),
            attributes=header.attributes & KNOWN_ATTRIBUTES,
            base_timestamp=header.base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            partition_leader_epoch=header.partition_leader_epoch,
        )
        return FilteredBatch(data, max_timestamp)


def _joined(data: bytes, kept: list[RecordSpan]) -> bytes:
    """The bytes of these records, neighbours in one piece."""
    parts: list[bytes] = []
    start, stop = kept[0].start, kept[0].stop
    for span in kept:
        if span.start > stop:
            parts.append(data[start:stop])
            start = span.start
        stop = span.stop
    parts.append(data[start:stop])
    return b"".join(parts)
