"""Records of a piece into librdkafka's queue, one call each, until the piece is done or the stretch is full.

This is what a link spends its time with: 1 us for librdkafka's `produce`, as much for the rest.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import Final

import attrs

from ...protocol.types import Record, TopicPartition
from .errors import RecordsRefusedError
from .memory import LinkMemory
from .pacing import Stretch
from .source.source import Gap, Piece
from .upstream.producer import UpstreamProducer

GAP_HEADER: Final = "triolog.gap"
"""First and last offset of what was lost before this record, as in `120-131`."""
ORIGIN_HEADER: Final = "triolog.origin"
"""Where a record is from: node/topic-partition@offset."""
ERROR_HEADER: Final = "triolog.error"
"""Why a record is in the dead-letter topic."""
LOOK_EACH: Final = 63
"""Records between two looks at the clock; a mask."""

Headers = tuple[tuple[str, bytes | None], ...]


@attrs.define(eq=False, repr=False)
class Handing:
    """A piece that is being handed over. Owner: the session."""

    piece: Piece
    target: str
    gap: Gap | None
    offset: int
    """Behind the last record that was handed over."""
    size_bytes: int = 0
    """Of the last record that was handed over."""
    last_offset: int = -1
    """Of the last record that was handed over."""
    timestamp: int = -1
    handed: int = 0
    """Records that went since the session has counted them, also when `hand_over` raises."""
    is_done: bool = False


def hand_over(memory: LinkMemory, producer: UpstreamProducer, handing: Handing, stretch: Stretch, already: int) -> int:
    """Hand over records and return their number. `already` counts the partition's records in the stretch. Raises as `make_room`
    does.

    A record that librdkafka cannot send (too large, or a NUL character in the name of a header) ends the stretch before it, so
    that the records before it are committed. The next stretch begins with it and raises RecordsRefusedError. Where the cap
    says so it waits between records, for as long as the stretch may be open.
    """
    produce, partition, target = producer.produce, handing.piece.partition, handing.target
    number, cap, settings = partition.partition, memory.cap, memory.settings
    most = min(memory.caution.limit(partition) - already, stretch.max_records - stretch.records)
    room, deadline = stretch.max_bytes - stretch.bytes, stretch.begun_s + stretch.max_delay_s
    refused = memory.refused.get(partition)
    gap = handing.gap
    is_special = gap is not None or settings.origin_header or refused is not None
    records = size = 0
    if most <= 0 or room <= 0:
        return 0
    for record in handing.piece.records:
        offset, timestamp, key, value, headers = record
        each = (0 if value is None else len(value)) + (0 if key is None else len(key))
        topic, to = target, number
        if is_special:
            gap = handing.gap
            headers = _headers(memory, handing, record)
            if refused is not None and offset in refused:
                topic, to, headers = _dead_letter(memory, partition, record, headers, refused[offset])
        if headers:
            each += sum(len(name) + (0 if data is None else len(data)) for name, data in headers)
            if (cut := next((name for name, _ in headers if "\0" in name), None)) is not None:
                if not (records or stretch.records):
                    reason = f"librdkafka would cut its header name {cut!r} at the NUL character"
                    raise RecordsRefusedError(topic, to, reason, is_size=False, offset=offset)
                _end_before(handing, record, gap)
                return _handed(stretch, records, size)
        while True:
            try:
                produce(topic, value, key, to, timestamp=timestamp or 1, headers=list(headers) or None)
                break
            except BufferError:
                producer.make_room()
            except producer.failure as exc:
                error = producer.explain(exc, topic, to, offset, each)
                if not isinstance(error, RecordsRefusedError) or not (records or stretch.records):
                    raise error from None
                _end_before(handing, record, gap)
                return _handed(stretch, records, size)
        records += 1
        handing.handed = records
        size += each
        handing.last_offset, handing.offset, handing.size_bytes = offset, offset + 1, each
        if timestamp >= 0:
            handing.timestamp = timestamp
        if cap is not None:
            cap.sent(each, now_s := time.monotonic())
        if records >= most or size >= room:
            break
        if cap is not None:
            wait_s = cap.wait_s(now_s)
            if now_s + wait_s >= deadline or (wait_s and memory.wishes.wait(wait_s, memory.wishes.version)):
                break
        elif not records & LOOK_EACH:
            producer.look()
            if time.monotonic() >= deadline:
                break
    else:
        handing.offset, handing.is_done = handing.piece.next_offset, True
    return _handed(stretch, records, size)


def _end_before(handing: Handing, record: Record, gap: Gap | None) -> None:
    """Let the next stretch begin with this record."""
    handing.piece = handing.piece._replace(records=chain((record,), handing.piece.records))
    handing.gap = gap


def _handed(stretch: Stretch, records: int, size: int) -> int:
    stretch.records += records
    stretch.bytes += size
    return records


def _headers(memory: LinkMemory, handing: Handing, record: Record) -> Headers:
    headers = record.headers
    if memory.settings.origin_header:
        headers = (*headers, (ORIGIN_HEADER, _origin(memory, handing.piece.partition, record.offset)))
    if handing.gap is not None:
        headers = (*headers, (GAP_HEADER, str(handing.gap).encode()))
        handing.gap = None
    return headers


def _dead_letter(
    memory: LinkMemory, partition: TopicPartition, record: Record, headers: Headers, reason: str
) -> tuple[str, int, Headers]:
    """`headers` are those that the link would send: among them a gap, which nothing else is told with."""
    assert memory.settings.dead_letter_topic is not None
    if not memory.settings.origin_header:
        headers = (*headers, (ORIGIN_HEADER, _origin(memory, partition, record.offset)))
    return memory.settings.dead_letter_topic, -1, (*headers, (ERROR_HEADER, reason.encode()))


def _origin(memory: LinkMemory, partition: TopicPartition, offset: int) -> bytes:
    return f"{memory.node}/{partition}@{offset}".encode()
