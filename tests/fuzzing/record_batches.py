"""Record batches with every codec, of producers, transactions and coordinators, as a client sends them and as a log holds them.

No search finds a CRC or a compressed block by chance, so the first byte may ask for help (`FIX`, `PACK`). Then every way to
read a batch is asked, and what they say has to agree: record by record, the walk of an append, the quick way of one batch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

from triolog.protocol import errors, limits, types
from triolog.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    check_batch,
    crc32c,
    empty_batch_header,
    end_txn_marker,
    iter_batches,
    parse_header,
)
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.compression import compress
from triolog.protocol.records.record import first_record_at, iter_records
from triolog.protocol.records.steps import BatchLimits
from triolog.protocol.records.walk import walk_records
from triolog.server.config import LogConfig
from triolog.server.storage.log.prepare import prepare_append, prepare_one
from triolog.server.storage.producers.producer_cursor import parse_end_txn_marker

from tests.fuzzing.target import BrokenInvariantError, Target, require

FIX: Final = 1
"""In the first byte: the batch gets its true length and CRC."""
PACK: Final = 2
"""In the first byte: what lies behind the header is compressed by the codec that the header names."""
DOCUMENTED: Final = (
    errors.CorruptRecordError,
    errors.InvalidRecordError,
    errors.InvalidTimestampError,
    errors.RecordTooLargeError,
    errors.UnsupportedCompressionTypeError,
)
MOST_UNPACKED_BYTES: Final = limits.MIB
LIMITS: Final = BatchLimits(unpacked_bytes=MOST_UNPACKED_BYTES)
NOW_MS: Final = 1_700_000_000_000
CONFIG: Final = LogConfig()
PARTITION: Final = types.TopicPartition("t", 0)
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")


def feed(data: bytes) -> bool:
    """See `Target.feed`: whether the first batch is whole and all of its records can be read."""
    if not data:
        return False
    batches = helped(data[0], data[1:])
    _check_append(batches)
    is_good = False
    try:
        for header, batch in iter_batches(batches):
            is_good = _feed_batch(header, batch) or is_good
    except errors.CorruptRecordError:
        return False
    except BrokenInvariantError:
        raise
    except Exception as exc:
        raise BrokenInvariantError(f"{exc!r} of the walk over batches: {data.hex()}") from exc
    return is_good


def helped(how: int, batch: bytes) -> bytes:
    """The batch with what no search can find."""
    if len(batch) < RECORD_BATCH_OVERHEAD:
        return batch
    codec = batch[ATTRIBUTES_POSITION + 1] & COMPRESSION_MASK
    changed = bytearray(batch)
    if how & PACK and codec <= max(types.CompressionType):
        changed[RECORD_BATCH_OVERHEAD:] = compress(types.CompressionType(codec), bytes(batch[RECORD_BATCH_OVERHEAD:]))
    if how & FIX:
        _LENGTH.pack_into(changed, 8, len(changed) - 12)
        _CRC.pack_into(changed, 17, crc32c(changed[ATTRIBUTES_POSITION:]))
    return bytes(changed)


def _feed_batch(header: BatchHeader, batch: memoryview) -> bool:
    is_whole = _outcome(lambda: check_batch(batch, header), batch)[1] is None
    records, refusal = _outcome(lambda: list(iter_records(batch, header, max_bytes=MOST_UNPACKED_BYTES)), batch)
    walk, _ = _outcome(lambda: walk_records(batch, header, max_bytes=MOST_UNPACKED_BYTES), batch)
    gaps, gaps_refusal = _outcome(lambda: walk_records(batch, header, max_bytes=MOST_UNPACKED_BYTES, allow_gaps=True), batch)
    if walk is not None:
        require(records is not None, f"a batch that is appended cannot be read: {refusal!r}: {batch.hex()}")
        _check_walk(walk, records, header, batch)
        require(gaps is not None, f"with gaps it is refused: {gaps_refusal!r}: {batch.hex()}")
    if header.is_control:
        _outcome(lambda: parse_end_txn_marker(header, batch), batch)
    _outcome(lambda: first_record_at(batch, header, timestamp=NOW_MS, min_offset=0, max_bytes=MOST_UNPACKED_BYTES), batch)
    if records is None or walk is None:
        return False
    _check_repeatable(records, header, batch)
    return is_whole


def _outcome(read: Callable[[], Any], batch: memoryview) -> tuple[Any, Exception | None]:
    """(the answer, None) or (None, the documented error)."""
    try:
        return read(), None
    except DOCUMENTED as exc:
        require(str(exc), f"an error without words: {batch.hex()}")
        return None, exc
    except Exception as exc:
        raise BrokenInvariantError(f"{exc!r} is not documented: {batch.hex()}") from exc


def _check_walk(walk: Any, records: list[types.Record], header: BatchHeader, batch: memoryview) -> None:
    times = [record.timestamp for record in records]
    found = len(records), max(times, default=types.NO_TIMESTAMP), any(record.key is None for record in records)
    told = walk.records_count, walk.max_timestamp, walk.has_null_key
    require(found == told, f"the walk says {told}, the records {found}: {batch.hex()}")
    offsets = [record.offset - header.base_offset for record in records]
    require(offsets == list(range(len(records))), f"a batch with deltas {offsets} passed the walk: {batch.hex()}")


def _check_append(records: bytes) -> None:
    """The quick way of one batch accepts nothing that the other one does not, and makes the same of it."""
    quick = prepare_one(records, CONFIG, NOW_MS, LIMITS)
    if quick is None:
        with_words(lambda: prepare_append(records, PARTITION, CONFIG, now_ms=NOW_MS, limits=LIMITS), records)
        return
    slow, refusal = with_words(lambda: prepare_append(records, PARTITION, CONFIG, now_ms=NOW_MS, limits=LIMITS), records)
    require(slow is not None, f"accepted at once, and refused else: {refusal!r}: {records.hex()}")
    assert slow is not None
    same = (quick.size, quick.records_count, quick.max_timestamp, quick.has_producer)
    other = (slow.size, slow.records_count, slow.max_timestamp, slow.has_producer)
    kept = [bytes(batch) for _, batch in quick.batches] == [bytes(batch) for _, batch in slow.batches]
    require(same == other and kept, f"at once it is {same}, else {other}: {records.hex()}")


def with_words(append: Callable[[], Any], records: bytes) -> tuple[Any, Exception | None]:
    """(the prepared append, None) or (None, the documented error, which names the partition)."""
    prepared, refusal = _outcome(append, memoryview(records))
    require(refusal is None or str(PARTITION) in str(refusal), f"{refusal!r} does not name the partition: {records.hex()}")
    return prepared, refusal


def _check_repeatable(records: list[types.Record], header: BatchHeader, batch: memoryview) -> None:
    """What was read is written and is read again as the same."""
    timestamps = [record.timestamp for record in records]
    if min(timestamps) < types.NO_TIMESTAMP or not 0 <= header.base_offset <= limits.INT64_MAX - len(records):
        return
    again = build_batch(
        [(record.timestamp, record.key, record.value, record.headers) for record in records],
        base_offset=header.base_offset,
        compression_type=header.compression_type,
    )
    require(list(iter_records(again)) == records, f"what was read is written as something else: {batch.hex()}")


def seeds() -> Iterator[bytes]:
    """Batches with each codec, of each kind, whole and to be helped."""
    plain: list[Any] = [
        (NOW_MS, b"key", b"value", (("h", b"x"), ("empty", None))),
        (NOW_MS + 5, None, b"v" * 70, ()),
        (NOW_MS + 900, b"", None, (("a", b""),)),
    ]
    alike: list[Any] = [(NOW_MS + number, b"k", b"12345678", ()) for number in range(40)]
    for codec, records in product(types.CompressionType, (plain, alike)):
        batch = build_batch(records, compression_type=codec)
        yield bytes([0]) + batch
        yield bytes([FIX]) + batch
        header = bytearray(build_batch(records))
        header[ATTRIBUTES_POSITION + 1] |= codec
        yield bytes([FIX | PACK]) + bytes(header)
        yield bytes([0]) + batch + build_batch(plain, base_offset=len(records), compression_type=codec)
    produced = build_batch(plain, producer_id=1000, producer_epoch=1, base_sequence=5, is_transactional=True)
    markers = [
        end_txn_marker(producer_id=1000, producer_epoch=1, commit=commit, timestamp=NOW_MS, coordinator_epoch=3)
        for commit in (True, False)
    ]
    empty = empty_batch_header(base_offset=3, last_offset=9, max_timestamp=NOW_MS, producer_id=4, base_sequence=2)
    for batch in (produced, *markers, empty, produced + markers[0]):
        yield bytes([0]) + batch
        yield bytes([FIX]) + batch
    header_only = parse_header(produced)
    yield bytes([FIX]) + produced[: RECORD_BATCH_OVERHEAD + header_only.records_count]


TARGET: Final = Target(
    name="record-batches",
    feed=feed,
    seeds=seeds,
    modules=(
        "triolog.protocol.records",
        "triolog.server.storage.log.prepare",
        "triolog.server.storage.segments.segment_view",
        "triolog.server.storage.producers.producer_cursor",
    ),
    max_bytes=1024,
)
