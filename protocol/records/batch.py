"""The record batch, magic 2: its header, its framing in a stream, its checksum (KIP-98; Kafka: DefaultRecordBatch).

| position | bytes | field | covered by the CRC |
|---:|---:|---|---|
| 0 | 8 | base_offset | no |
| 8 | 4 | batch_length: bytes that follow this field | no |
| 12 | 4 | partition_leader_epoch | no |
| 16 | 1 | magic, 2 | no |
| 17 | 4 | crc: CRC-32C of everything from position 21 on, unsigned | - |
| 21 | 2 | attributes | yes |
| 23 | 4 | last_offset_delta | yes |
| 27 | 8 | base_timestamp, or the delete horizon (attribute bit 6) | yes |
| 35 | 8 | max_timestamp | yes |
| 43 | 8 | producer_id | yes |
| 51 | 2 | producer_epoch | yes |
| 53 | 4 | base_sequence | yes |
| 57 | 4 | records_count | yes |
| 61 | .. | records, compressed together when attribute bits 0-2 say so | yes |

Integers are big-endian. A broker can give a batch its offsets and its leader epoch without touching the checksum. What
the records are is `record`'s; that their number and offsets agree with the header is checked there too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

from ..errors import CorruptRecordError, UnsupportedCompressionTypeError
from ..limits import INT32_MAX
from ..types import (
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Bytes,
    CompressionType,
    TimestampType,
)
from .checksum import crc32c as crc32c
from .control import ControlRecordType, commit_of_nothing, end_txn_record

LOG_OVERHEAD: Final = 12
"""base_offset and batch_length: what must be there to know how long a batch is."""
RECORD_BATCH_OVERHEAD: Final = 61
MAGIC: Final = 2

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
STAMP: Final = struct.Struct(">qii")
"""base_offset, batch_length, partition_leader_epoch: what `stamp` packs."""
_LENGTH: Final = struct.Struct(">8xi")
_BEFORE_CRC: Final = struct.Struct(">qiib")
_PRODUCER: Final = struct.Struct(">qhi")
_COVERED_HEADER: Final = struct.Struct(">hiqqqhii")
_MIN_BATCH_LENGTH: Final = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD
_MAGIC_POSITION: Final = 16
_CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
_MAX_TIMESTAMP_POSITION: Final = 35
_PRODUCER_POSITION: Final = 43


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, in wire order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """Of the whole batch, as stored."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """-1 when the producer is not idempotent."""
        first = self.base_sequence
        if first == NO_SEQUENCE:
            return NO_SEQUENCE
        last = first + self.last_offset_delta
        return last if last <= INT32_MAX else last - INT32_MAX - 1  # as increment_sequence, without the call

    @property
    def compression_type(self) -> CompressionType:
        """Raises UnsupportedCompressionTypeError for the ids 5..7, which name no codec."""
        compression_id = self.attributes & COMPRESSION_MASK
        try:
            return _COMPRESSION_TYPES[compression_id]
        except IndexError:
            raise UnsupportedCompressionTypeError(
                f"batch at offset {self.base_offset} is compressed with codec {compression_id}. Known: 0 to 4"
            ) from None

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Return whether base_timestamp is the time from which the cleaner may drop the batch's tombstones."""
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID


def parse_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """Read the header at `position`. Nothing is checked; the buffer must hold its 61 bytes."""
    # What BatchHeader._make does, without its Python-level call.
    return tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))


def iter_batches(buffer: Bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each batch's header and its exact bytes. An incomplete batch at the end is not an error: it ends the walk.

    CorruptRecordError when a length or a magic byte shows that no batch of magic 2 starts where one should.
    """
    view = memoryview(buffer)
    size = len(view)
    position = 0
    while size - position >= RECORD_BATCH_OVERHEAD:
        header = parse_header(view, position)
        if header.magic != MAGIC or header.batch_length < _MIN_BATCH_LENGTH:
            _raise_frame(position, header.batch_length, header.magic)
        stop = position + LOG_OVERHEAD + header.batch_length
        if stop > size:
            return
        yield header, view[position:stop]
        position = stop
    if size - position >= LOG_OVERHEAD:
        (batch_length,) = _LENGTH.unpack_from(view, position)
        magic = view[position + _MAGIC_POSITION] if size - position > _MAGIC_POSITION else MAGIC
        if magic != MAGIC or batch_length < _MIN_BATCH_LENGTH:
            _raise_frame(position, batch_length, magic)


def check_batch(batch: memoryview, header: BatchHeader) -> None:
    """CorruptRecordError unless the batch is as long as its header says and carries the checksum of its bytes."""
    if len(batch) != header.size_bytes or len(batch) < RECORD_BATCH_OVERHEAD:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} has {len(batch)} bytes, its header says {header.size_bytes}, "
            f"the smallest possible is {RECORD_BATCH_OVERHEAD}"
        )
    computed = crc32c(batch[ATTRIBUTES_POSITION:])
    if computed != header.crc:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} carries CRC {header.crc:#010x}, its {len(batch)} bytes have {computed:#010x}"
        )


def stamp(base_offset: int, header: BatchHeader, partition_leader_epoch: int) -> bytes:
    """Return the 16 bytes that replace the batch's first 16: new offset and epoch, same length. The CRC stays true."""
    return STAMP.pack(base_offset, header.batch_length, partition_leader_epoch)


def with_timestamp(batch: Bytes, timestamp_type: TimestampType, max_timestamp: int) -> bytearray:
    """Return a copy with another timestamp type and max_timestamp, and the CRC that goes with them.

    The timestamps of the records stay as they are; under LogAppendTime readers report max_timestamp for each of them.
    """
    changed = bytearray(batch)
    header = parse_header(changed)
    if header.timestamp_type == timestamp_type and header.max_timestamp == max_timestamp:
        return changed
    known_flags = header.attributes & (COMPRESSION_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG)
    attributes = known_flags | (LOG_APPEND_TIME_FLAG if timestamp_type == TimestampType.LOG_APPEND_TIME else 0)
    struct.pack_into(">h", changed, ATTRIBUTES_POSITION, attributes)
    struct.pack_into(">q", changed, _MAX_TIMESTAMP_POSITION, max_timestamp)
    struct.pack_into(">I", changed, _CRC_POSITION, crc32c(memoryview(changed)[ATTRIBUTES_POSITION:]))
    return changed


def with_producer(batch: Bytes, producer_id: int, producer_epoch: int, base_sequence: int) -> bytearray:
    """Return a copy that comes from another producer or has another place in its sequence, and the CRC that goes with it."""
    changed = bytearray(batch)
    _PRODUCER.pack_into(changed, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    struct.pack_into(">I", changed, _CRC_POSITION, crc32c(memoryview(changed)[ATTRIBUTES_POSITION:]))
    return changed


def assemble_batch(
    records: Bytes,
    *,
    base_offset: int,
    last_offset_delta: int,
    records_count: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """Put a header with length and CRC before `records` (already compressed, when the attributes say so)."""
    covered = _COVERED_HEADER.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )
    before = _BEFORE_CRC.pack(base_offset, _MIN_BATCH_LENGTH + len(records), partition_leader_epoch, MAGIC)
    crc = crc32c(records, crc32c(covered)) if records else crc32c(covered)
    return b"".join((before, crc.to_bytes(4, "big"), covered, records))


def empty_batch_header(
    *,
    base_offset: int,
    last_offset: int,
    max_timestamp: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Return the batch without records that compaction leaves: 61 bytes that keep the offsets and the producer's sequence."""
    attributes = LOG_APPEND_TIME_FLAG if timestamp_type == TimestampType.LOG_APPEND_TIME else 0
    attributes |= TRANSACTIONAL_FLAG if is_transactional else 0
    attributes |= CONTROL_FLAG if is_control else 0
    return assemble_batch(
        b"",
        base_offset=base_offset,
        last_offset_delta=last_offset - base_offset,
        records_count=0,
        attributes=attributes,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        partition_leader_epoch=partition_leader_epoch,
    )


def end_txn_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    timestamp: int,
    coordinator_epoch: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """The 78 byte control batch that ends a producer's transaction on a partition (Kafka: EndTransactionMarker)."""
    if producer_id <= NO_PRODUCER_ID or producer_epoch <= NO_PRODUCER_EPOCH:
        raise ValueError(f"a marker needs a producer, not id {producer_id} epoch {producer_epoch}")
    return assemble_batch(
        end_txn_record(ControlRecordType.COMMIT if commit else ControlRecordType.ABORT, coordinator_epoch),
        base_offset=base_offset,
        last_offset_delta=0,
        records_count=1,
        attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
    )


def gap_marker(*, base_offset: int, last_offset: int, partition_leader_epoch: int) -> bytes:
    """A control batch of no producer for offsets whose records are lost. Every client skips it and goes on behind it.

    Its one record has the last offset: librdkafka moves a consumer's position by records only, so an empty batch, as compaction
    leaves one, would not do.
    """
    return assemble_batch(
        commit_of_nothing(last_offset - base_offset),
        base_offset=base_offset,
        last_offset_delta=last_offset - base_offset,
        records_count=1,
        attributes=CONTROL_FLAG,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        partition_leader_epoch=partition_leader_epoch,
    )


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequences run from 0 to INT32_MAX and start again at 0."""
    if sequence > INT32_MAX - increment:
        return increment - (INT32_MAX - sequence) - 1
    return sequence + increment


def decrement_sequence(sequence: int, decrement: int) -> int:
    """The sequence `decrement` steps before: INT32_MAX comes before 0."""
    if sequence < decrement:
        return INT32_MAX - (decrement - sequence) + 1
    return sequence - decrement


def _raise_frame(position: int, batch_length: int, magic: int) -> NoReturn:
    if magic in (0, 1):
        raise CorruptRecordError(
            f"position {position}: legacy message format, magic {magic}, is unsupported. Expected magic {MAGIC}"
        )
    if batch_length < _MIN_BATCH_LENGTH:
        raise CorruptRecordError(f"position {position}: batch length is {batch_length}, expected at least {_MIN_BATCH_LENGTH}")
    raise CorruptRecordError(f"position {position}: magic is {magic}, expected {MAGIC}")


_COMPRESSION_TYPES: Final = tuple(CompressionType)
