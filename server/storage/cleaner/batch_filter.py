"""Filters the records of a batch for compaction (Kafka: MemoryRecords.filterTo, Cleaner.cleanInto).

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

Also locates the records in a batch: compaction reads the fields that it needs without building the records.

Varints of one and two bytes are decoded in place (see `protocol.records.walk`): at 100-byte records this loop is half of the
cleaner's work.

Also tracks the open transactions of a round, and decides which of their batches it may remove (Kafka:
CleanedTransactionMetadata).

Records of aborted transactions go at once; an entry of the transaction index counts up to its marker's offset, also where
damage has taken the marker out. A marker has to stay as long as a record of its transaction does: it is discardable when the
cleaner came by no batch of the transaction on its way to the marker. An ABORT marker that stays keeps its entry in the
transaction index.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
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
from ....protocol.records.control import ControlRecordType, control_record_type
from ....protocol.records.record import iter_records
from ....protocol.records.unpacking import raise_consumption, raise_length, raise_offset_delta, raise_underflow, records_data
from ....protocol.records.varint import decode_unsigned_varint, decode_varlong, encode_varint, encode_varlong
from ....protocol.types import NO_OFFSET, NO_TIMESTAMP, Bytes, CompressionType, TimestampType
from ..indexes.transaction_index import AbortedTxn
from .offset_map import OffsetMap

KNOWN_ATTRIBUTES: Final = 0x7F
"""Bits 0 to 6; what a batch carries beyond is dropped when it is put together again, as Kafka does."""


class LastRecord(NamedTuple):
    """The log's last record of an active producer: its epoch, and the last offset of its last batch (None: it has no data).

    `synced_offset`: the last offset of its last batch below the recovery point, if that is another batch. -1: no such batch has
    to be kept. None: the log does not remember it.
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
        """Return the part of a batch to keep. Raises CorruptRecordError or InvalidRecordError for damage, never copied."""
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


class RecordSpan(NamedTuple):
    """A record in the uncompressed bytes [start, stop) of its batch's records, its length field included."""

    start: int
    stop: int
    body: int
    """Where the record goes on behind its timestamp delta."""
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def record_spans(data: bytes, header: BatchHeader) -> list[RecordSpan]:
    """The records in `data`, which is `records_data` of the batch. Headers of records are not looked into.

    Offset deltas increase and stay within the batch. Raises InvalidRecordError.
    """
    spans: list[RecordSpan] = []
    build, new = RecordSpan, tuple.__new__
    position, previous, last = 0, -1, header.last_offset_delta
    try:
        for _ in range(header.records_count):
            start = position
            if (length := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                length = length & 0x7F | second << 7
                position += 2
            else:
                length, position = decode_unsigned_varint(data, position)
            stop = position + (length >> 1)
            if (folded := data[position + 1]) < 0x80:
                position += 2
                timestamp_delta = folded >> 1 ^ -(folded & 1)
            elif (second := data[position + 2]) < 0x80:
                folded = folded & 0x7F | second << 7
                position += 3
                timestamp_delta = folded >> 1 ^ -(folded & 1)
            else:
                timestamp_delta, position = decode_varlong(data, position + 1)
            body = position
            if (folded := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                folded = folded & 0x7F | second << 7
                position += 2
            else:
                folded, position = decode_unsigned_varint(data, position)
            offset_delta = folded >> 1 ^ -(folded & 1)
            if not previous < offset_delta <= last:
                raise_offset_delta(header, len(spans), offset_delta)
            previous = offset_delta
            if (folded := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                folded = folded & 0x7F | second << 7
                position += 2
            else:
                folded, position = decode_unsigned_varint(data, position)
            if folded & 1:
                key = None
            else:
                key = data[position : position + (folded >> 1)]
                position += folded >> 1
            # Zigzag keeps the sign in the lowest bit of the first byte: a length below 0 is null.
            has_value = not data[position] & 1
            if length & 1 or position >= stop:
                raise_length(header, len(spans), stop - position)
            spans.append(new(build, (start, stop, body, timestamp_delta, offset_delta, key, has_value)))
            position = stop
    except IndexError:
        raise_underflow(header, len(spans), data)
    if position != len(data):
        raise_consumption(header, position, data)
    return spans


@attrs.define(eq=False, repr=False)
class CleanedTransactions:
    """Transactions along one pass over a log, from its first segment on. Owner: that pass."""

    cleaned_index: list[AbortedTxn] = attrs.field(factory=list)
    """Entries of markers that stay, of the segment that is being written."""
    _ahead: list[tuple[int, AbortedTxn]] = attrs.field(factory=list)
    _aborted: dict[int, tuple[AbortedTxn, bool]] = attrs.field(factory=dict)
    """By producer: the aborted transaction that the pass is in, and whether a batch of it was there."""
    _committed: set[int] = attrs.field(factory=set)

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """These lie ahead: their markers do, at least."""
        for txn in transactions:
            heapq.heappush(self._ahead, (txn.first_offset, txn))

    def on_data_batch(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        entry = self._aborted.get(header.producer_id)
        if entry is not None and entry[0].last_offset < header.base_offset:
            del self._aborted[header.producer_id]
            entry = None
        if entry is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = entry[0], True
        return True

    def on_control_batch(self, header: BatchHeader, batch: Bytes) -> bool:
        """Return whether the log keeps nothing else that the control batch describes. Control batches other than markers always
        stay."""
        self._reach(header.last_offset)
        if not header.records_count:
            return True
        kind = control_record_type(next(iter(iter_records(batch, header))).key)
        if kind is ControlRecordType.ABORT:
            txn, has_batches = self._aborted.pop(header.producer_id, (None, False))
            if txn is None or not has_batches:
                return True
            self.cleaned_index.append(txn)
            return False
        if kind is ControlRecordType.COMMIT:
            has_batches = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not has_batches
        return False

    def take_cleaned_index(self) -> list[AbortedTxn]:
        """Entries that belong to the segment written so far; the next segment starts with none."""
        entries, self.cleaned_index = self.cleaned_index, []
        return entries

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            _, txn = heapq.heappop(self._ahead)
            self._aborted.setdefault(txn.producer_id, (txn, False))
