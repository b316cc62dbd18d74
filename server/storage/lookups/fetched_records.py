"""Unpacks fetched batches into plain records, for readers that do not read batches themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ....protocol.errors import RequestError
from ....protocol.limits import MAX_DECOMPRESSED_BYTES
from ....protocol.records.batch import iter_batches
from ....protocol.records.record import CommittedFilter, record_steps
from ....protocol.records.steps import STEPS_PER_PAUSE, BatchLimits
from ....protocol.records.unpacking import is_large
from ....protocol.types import NO_OFFSET, Record, TimeRange
from ..disk.diskops import Procedure
from ..segments.segment_view import dropped, unpacked
from .fetch import FetchedRecords

RECORD_OVERHEAD_BYTES: Final = 32
"""Counted per plain record beside key, value and headers."""
MOST_ITEMS: Final = 2000
"""Records and headers of one answer: it is packed in one go. Who wants more at a time reads batches."""
RECORDS_PER_PAUSE: Final = STEPS_PER_PAUSE // 2
PARTITIONS_PER_PAUSE: Final = 16


class PlainRecords(NamedTuple):
    """Records to be seen, and where to read on, which may lie behind records that nobody sees."""

    records: tuple[Record, ...]
    next_offset: int
    size_bytes: int
    items: int
    """Records and headers."""


def aborted_pairs(fetched: FetchedRecords) -> tuple[tuple[int, int], ...]:
    """(producer id, first offset) of each aborted transaction, by first offset."""
    aborted = sorted((txn.first_offset, txn.producer_id) for txn in fetched.aborted or ())
    return tuple((producer_id, first_offset) for first_offset, producer_id in aborted)


class WantedRecords(NamedTuple):
    """The fetched records of a partition from `offset` on (None: nothing was fetched), and the number of bytes of records
    requested from it."""

    fetched: FetchedRecords | None
    offset: int
    max_bytes: int
    times: TimeRange | None = None
    """None: all that was fetched."""


def plain_partitions(
    wanted: Sequence[WantedRecords], *, max_bytes: int, limits: BatchLimits
) -> Procedure[list[PlainRecords | RequestError | None]]:
    """Several partitions as plain records; None where nothing was fetched, and an error of its own where batches cannot be
    unpacked.

    The records of all together have about `max_bytes`: what they were read from can be a thousandth of that.
    """
    found: list[PlainRecords | RequestError | None] = []
    is_empty = True
    left, left_items = max_bytes, MOST_ITEMS
    for fetched, offset, most, times in wanted:
        if fetched is None:
            found.append(None)
            continue
        if is_empty:
            left, left_items = max(0, left), max(0, left_items)
        try:
            plain = yield from plain_records(
                fetched, offset, max_bytes=min(most, left), max_items=left_items, limits=limits, times=times
            )
            left -= plain.size_bytes
            left_items -= plain.items
            found.append(plain)
        except RequestError as exc:
            found.append(exc.as_answer())
        is_empty = is_empty and not fetched.records
        if not len(found) % PARTITIONS_PER_PAUSE:
            yield None
    return found


def plain_records(
    fetched: FetchedRecords,
    offset: int,
    *,
    max_bytes: int,
    max_items: int,
    limits: BatchLimits,
    times: TimeRange | None = None,
) -> Procedure[PlainRecords]:
    """The records from the asked offset on (NO_OFFSET: the log start), without control batches and aborted transactions, of a
    range of `times` only its own; they stop once they are larger than `max_bytes` or more than `max_items`, and are none if one
    of these is negative. Raises what unpacking a batch raises, InvalidRecordError for a record with more headers than
    producers may send."""
    records: list[Record] = []
    offset = fetched.log_start_offset if offset == NO_OFFSET else offset
    next_offset = offset
    size = items = seen = 0
    if max_bytes < 0 or max_items < 0:
        return PlainRecords((), next_offset, size, items)
    committed = CommittedFilter(aborted_pairs(fetched))
    for header, batch in iter_batches(fetched.records):
        if not committed.leaves_out(header, batch):
            data = yield from unpacked(batch, header, MAX_DECOMPRESSED_BYTES)
            try:
                for record in record_steps(data, header, limits):
                    seen += 1
                    if record is None or not seen % RECORDS_PER_PAUSE:
                        yield None
                    if record is None or record.offset < offset or (times is not None and not times.holds(record.timestamp)):
                        continue
                    records.append(record)
                    size += _size_of(record)
                    items += 1 + len(record.headers)
                    if size > max_bytes or items > max_items:
                        break
            except RequestError:
                yield from dropped(data)
                raise
            if is_large(data):
                yield from dropped(data)
            if size > max_bytes or items > max_items:
                return PlainRecords(tuple(records), records[-1].offset + 1, size, items)
        next_offset = max(next_offset, header.next_offset)
    return PlainRecords(tuple(records), max(next_offset, fetched.next_offset), size, items)


def _size_of(record: Record) -> int:
    headers = sum(len(key) + len(value or b"") for key, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD_BYTES
