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

The last offset of every key, in memory of a fixed size (Kafka: SkimpyOffsetMap).

A key stands in the map as 128 bits of its BLAKE2b hash, so an entry has 24 bytes whatever the key's length: offset + 1, then
both halves of the hash, 0 for an empty slot. Collisions are found by open addressing with double hashing in a prime number of
slots. Two keys of one hash would be taken for the same key: the hash is salted for every map, so nobody can prepare such keys.

A dict from hash to offset puts a key in 0.8 us instead of 1.3 us (CPython 3.11, half a million keys), but an entry of it has
64 (hash) + 32 (offset) + 40 to 110 (its share of the table) bytes, and growing doubles the table: for the same memory it holds
a sixth of the keys, and every key that does not fit costs another round over the whole log.
"""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

import attrs

from ....protocol.limits import MAX_DECOMPRESSED_BYTES
from ....protocol.records.batch import DELETE_HORIZON_FLAG, BatchHeader, assemble_batch, check_batch, empty_batch_header
from ....protocol.records.compression import compress
from ....protocol.records.control import ControlRecordType, control_record_type
from ....protocol.records.record import iter_records
from ....protocol.records.unpacking import raise_consumption, raise_length, raise_offset_delta, raise_underflow, records_data
from ....protocol.records.varint import decode_unsigned_varint, decode_varlong, encode_varint, encode_varlong
from ....protocol.types import NO_OFFSET, NO_TIMESTAMP, Bytes, CompressionType, TimestampType
from ..indexes.transaction_index import AbortedTxn

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
    """NO_TIMESTAMP: not known; no delete horizon is set, and none has passed."""
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
            if not is_last_trace or header.has_delete_horizon or self.rules.now_ms == NO_TIMESTAMP:
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
        is_dated = header.has_delete_horizon or self.rules.now_ms == NO_TIMESTAMP
        if not is_dated and not all(span.has_value for span in kept):
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


ENTRY_BYTES: Final = 24
LOAD_FACTOR: Final = 0.9
"""How full the map may get (Kafka: log.cleaner.io.buffer.load.factor)."""

_WORDS: Final = 3
_HALVES: Final = Struct("<QQ")
_HASH_BYTES: Final = 16


class OffsetMap:
    """Offset by key. Owner: one round of the cleaner."""

    __slots__ = ("_hash", "_slots", "_table", "entries", "latest_offset", "max_entries")

    def __init__(self, memory_bytes: int, load_factor: float = LOAD_FACTOR) -> None:
        """A map of at most `memory_bytes`. Raises ValueError when not one entry would fit."""
        self._slots = _largest_prime(memory_bytes // ENTRY_BYTES)
        self.max_entries = int(self._slots * load_factor)
        if self.max_entries < 1:
            raise ValueError(f"an offset map of {memory_bytes} bytes is too small. It needs at least {3 * ENTRY_BYTES} bytes")
        # Zeroed lazily by the system: pages that no key falls on take no memory.
        self._table = memoryview(bytearray(self._slots * ENTRY_BYTES)).cast("Q")
        self._hash = blake2b(digest_size=_HASH_BYTES, key=secrets.token_bytes(_HASH_BYTES))
        self.entries = 0
        self.latest_offset = -1
        """Every record up to here is in the map, if it has a key and was not aborted."""

    def has_room(self, entries: int) -> bool:
        return self.entries + entries <= self.max_entries

    def put_all(self, offsets: Iterable[tuple[Bytes, int]]) -> None:
        """Let these keys have these offsets; later ones replace earlier ones. The caller has asked `has_room`."""
        table, slots, copy, halves = self._table, self._slots, self._hash.copy, _HALVES.unpack
        words = slots * _WORDS
        added = 0
        for key, offset in offsets:
            digest = copy()
            digest.update(key)
            high, low = halves(digest.digest())
            at = high % slots * _WORDS
            if table[at]:
                step = (1 + low % (slots - 1)) * _WORDS
                while table[at] and (table[at + 1] != high or table[at + 2] != low):
                    at += step
                    if at >= words:
                        at -= words
            if not table[at]:
                added += 1
                table[at + 1], table[at + 2] = high, low
            table[at] = offset + 1
        self.entries += added
        assert self.entries <= self.max_entries, f"{self.entries} entries in a map of {self.max_entries}"

    def get(self, key: Bytes) -> int:
        """The key's last offset, -1 when it is not in the map."""
        table, slots = self._table, self._slots
        digest = self._hash.copy()
        digest.update(key)
        high, low = _HALVES.unpack(digest.digest())
        at = high % slots * _WORDS
        found: int
        if not (found := table[at]) or (table[at + 1] == high and table[at + 2] == low):
            return found - 1
        step = (1 + low % (slots - 1)) * _WORDS
        words = slots * _WORDS
        while True:
            at += step
            if at >= words:
                at -= words
            if not (found := table[at]) or (table[at + 1] == high and table[at + 2] == low):
                return found - 1


def _largest_prime(limit: int) -> int:
    """The largest prime <= `limit`, 0 below 3: a step of any size then visits every slot."""
    number = limit - 1 + limit % 2
    while number >= 3 and any(number % divisor == 0 for divisor in range(3, int(number**0.5) + 1, 2)):
        number -= 2
    return max(0, number)
