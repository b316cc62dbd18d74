"""Finds the start of each record of a group: the only fact that has to be found record by record, in order.

Batches do not depend on each other, so one step passes the first records of all, the next step the second ones, and so on. A
step takes about 1.5 us for up to 100 batches; the scalar loop takes 0.13 us for one record. Steps pass lengths of one and two
bytes, records below 8 KiB; the scalar loop passes a batch in which they get stuck.

It also selects the batches that are decoded together, and finds their records.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from ...errors import InvalidRecordError, TriologError
from ...limits import INT32_MAX, MAX_DECOMPRESSED_BYTES, MIB
from ...types import Bytes
from ..batch import COMPRESSION_MASK, CONTROL_FLAG, RECORD_BATCH_OVERHEAD, BatchHeader, check_batch, iter_batches
from ..record import CommittedFilter
from ..steps import LEAST_RECORD_BYTES
from ..unpacking import records_data
from ..varint import decode_unsigned_varint
from .varints import LeftToScalarError

if TYPE_CHECKING:
    from .varints import Bools, Int64s

LEAST_BATCHES: Final = 12
"""With fewer the scalar loop is as fast."""


def record_starts(group: BatchGroup) -> tuple[Int64s, Int64s]:
    """Positions of the records' lengths and of the records' ends, in the group's buffer.

    The ends are those that the lengths give, and each batch's records fill its bytes exactly. LeftToScalarError if not.
    """
    import numpy as np

    if not all(map(is_plausible, group.batches)):
        raise LeftToScalarError
    count = len(group.batches)
    counts = np.array([batch.header.records_count for batch in group.batches], np.int64)
    firsts = np.array([batch.start for batch in group.batches], np.int64)
    stops = np.array([batch.stop for batch in group.batches], np.int64)
    rows = np.cumsum(counts)
    starts = np.empty(int(rows[-1]), np.int64)
    is_passed = np.zeros(count, np.bool_)
    if count >= LEAST_BATCHES:
        is_passed = _pass_together(group, starts, counts, firsts, stops)
    for number in np.flatnonzero(~is_passed).tolist():
        first, size, row = int(firsts[number]), int(counts[number]), int(rows[number])
        data = bytes(memoryview(group.buffer)[first : int(stops[number])])
        # Without a count, which would leave what is checked behind the last record out.
        starts[row - size : row] = np.fromiter(_pass_one_by_one(data, size), np.int64)
        starts[row - size : row] += first
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[rows - 1] = stops
    return starts, ends


def _pass_together(group: BatchGroup, starts: Int64s, counts: Int64s, firsts: Int64s, stops: Int64s) -> Bools:
    """Fill `starts` and say for which batches; the rest of it means nothing."""
    import numpy as np

    rows = np.cumsum(counts) - counts
    is_passed = np.zeros(len(counts), np.bool_)
    order = np.argsort(-counts, kind="stable")  # those with the most records first: they are passed the longest
    ascending = counts[order[::-1]]
    positions = firsts[order]
    done, active = 0, len(order)
    while active >= LEAST_BATCHES:
        steps = int(counts[order[active - 1]]) - done
        try:
            passed = _steps(group, positions[:active], steps)
        except IndexError:  # a length leads out of the group
            break
        starts[rows[order[:active]] + done + np.arange(steps)[:, None]] = passed[:-1]
        positions[:active] = passed[-1]
        done += steps
        ended = slice(len(order) - int(np.searchsorted(ascending, done, "right")), active)
        # Where it got stuck, at a length of 0 steps, it did not move in its last step either.
        is_passed[order[ended]] = (passed[-1, ended] == stops[order[ended]]) & (passed[-2, ended] < passed[-1, ended])
        active = ended.start
    return is_passed


def _steps(group: BatchGroup, positions: Int64s, steps: int) -> Int64s:
    """Positions before the first step, behind it, and so on; one row for each."""
    import numpy as np

    bytes_of_pair = _bytes_of_pair()
    pairs = np.ndarray((len(group.buffer) - 1,), "<u2", group.buffer, 0, (1,))  # of every byte and the next one
    passed = np.empty((steps + 1, len(positions)), np.int64)
    passed[0] = positions
    before = passed[0]
    for after in passed[1:]:
        np.add(before, bytes_of_pair.take(pairs[before]), out=after)
        before = after
    return passed


@functools.cache
def _bytes_of_pair() -> Int64s:
    """Of a record with its length, by the two bytes that it begins with, the second one 256-fold; 0 for others."""
    import numpy as np

    pairs = np.arange(1 << 16)
    first, second = pairs & 0xFF, pairs >> 8
    short = 1 + (first >> 1)
    long = 2 + ((first & 0x7F | second << 7) >> 1)
    sizes: Int64s = np.where(first < 0x80, short, np.where(second < 0x80, long, 0))
    sizes[first & 1 == 1] = 0  # negative
    return sizes


def _pass_one_by_one(data: bytes, count: int) -> Iterator[int]:
    position = 0
    try:
        for _ in repeat(None, count):
            yield position
            if (length := data[position]) < 0x80:
                position += 1 + (length >> 1)
            elif (second := data[position + 1]) < 0x80:
                position += (length >> 1) + (second << 6) - 62
            else:
                folded, position = decode_unsigned_varint(data, position)
                length = folded & 1
                position += folded >> 1
            if length & 1:  # negative
                raise LeftToScalarError
    except (IndexError, InvalidRecordError):
        raise LeftToScalarError from None
    if position != len(data):
        raise LeftToScalarError


GROUP_BYTES: Final = 8 * MIB
"""Uncompressed, from the first batch to the end of the last. Arrays of a group then stay in the processor's cache."""
GROUP_RECORDS: Final = 1 << 16


class GroupedBatch(NamedTuple):
    """A batch whose records are wanted."""

    header: BatchHeader
    batch: memoryview
    """As stored."""
    start: int
    """Of its records, in the buffer of the group."""
    stop: int


class BatchGroup(NamedTuple):
    """Batches that are decoded together. Their records lie in `buffer` in order, maybe with other bytes in between."""

    buffer: Bytes
    batches: list[GroupedBatch]


class Selection(NamedTuple):
    """The batches that are decoded: those with offsets from `low` up to, exclusive, `high`."""

    low: int
    high: int
    check_crcs: bool
    committed: CommittedFilter | None
    least_timestamp: int | None = None
    """In ms; batches that say that all of theirs are below it are left out."""


def batch_groups(data: Bytes, selection: Selection) -> Iterator[BatchGroup]:
    """Group the selected batches that have records. Errors come behind the groups of the batches before them.

    Raises what `iter_batches`, `check_batch`, the filter and `records_data` raise.
    """
    view = memoryview(data)
    batches: list[GroupedBatch] = []
    payloads: list[Bytes] = []
    first = position = size = records = 0
    failure: TriologError | None = None
    walk = iter_batches(view)
    while True:
        try:
            if (found := next(walk, None)) is None:
                break
            header, batch = found
            start, position = position, position + len(batch)
            if not _is_selected(header, batch, selection) or not header.records_count:
                continue
            is_stored = not header.attributes & COMPRESSION_MASK and header.records_count > 0
            payload = b"" if is_stored else records_data(batch, header, MAX_DECOMPRESSED_BYTES)
            payload_bytes = len(batch) - RECORD_BATCH_OVERHEAD if is_stored else len(payload)
        except TriologError as exc:
            failure = exc
            break
        if batches and (
            is_stored != (not payloads)
            or size + payload_bytes > GROUP_BYTES
            or position - first > GROUP_BYTES
            or records + header.records_count > GROUP_RECORDS
        ):
            yield _group(view, first, batches, payloads)
            batches, payloads, size, records = [], [], 0, 0
        if not batches:
            first = start + RECORD_BATCH_OVERHEAD
        if is_stored:
            batches.append(GroupedBatch(header, batch, start + RECORD_BATCH_OVERHEAD - first, position - first))
        else:
            batches.append(GroupedBatch(header, batch, size, size + payload_bytes))
            payloads.append(payload)
        size += payload_bytes
        records += header.records_count
    if batches:
        yield _group(view, first, batches, payloads)
    if failure is not None:
        raise failure


def is_plausible(batch: GroupedBatch) -> bool:
    """Return whether the records of the batch fit into its bytes. Callers that need memory for each record check this first."""
    return batch.header.records_count * LEAST_RECORD_BYTES <= batch.stop - batch.start <= INT32_MAX


def _group(view: memoryview, first: int, batches: list[GroupedBatch], payloads: list[Bytes]) -> BatchGroup:
    if not payloads:
        return BatchGroup(view[first : first + batches[-1].stop], batches)
    return BatchGroup(payloads[0] if len(payloads) == 1 else b"".join(payloads), batches)


def _is_selected(header: BatchHeader, batch: memoryview, selection: Selection) -> bool:
    # The sum and the flag as they stand here, not by their properties: a batch may hold one record only.
    is_inside = header.base_offset + header.last_offset_delta >= selection.low and header.base_offset < selection.high
    is_control = header.attributes & CONTROL_FLAG
    if selection.check_crcs and (is_inside or is_control):
        check_batch(batch, header)
    if selection.committed is not None and selection.committed.leaves_out(header, batch):
        return False
    if not is_inside or is_control:
        return False
    return selection.least_timestamp is None or header.max_timestamp >= selection.least_timestamp
