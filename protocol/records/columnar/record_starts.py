"""Where each record of a group starts: the one thing that has to be found record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InvalidRecordError
from ..varint import decode_varint
from .batch_groups import BatchGroup, GroupedBatch, is_plausible
from .varints import LeftToScalarError

if TYPE_CHECKING:
    from .arrays import Int64s


def record_starts(group: BatchGroup) -> tuple[Int64s, Int64s]:
    """Positions of the records' lengths and of the records' ends, in the group's buffer.

    The ends are those that the lengths give, and each batch's records fill its bytes exactly. LeftToScalarError if not.
    """
    import numpy as np

    if not all(map(is_plausible, group.batches)):
        raise LeftToScalarError
    starts = np.empty(sum(batch.header.records_count for batch in group.batches) + 1, np.int64)
    ends = np.empty(starts.size - 1, np.int64)
    row = 0
    for batch in group.batches:
        found = _chain(bytes(memoryview(group.buffer)[batch.start : batch.stop]), batch)
        stop = row + len(found)
        starts[row:stop] = found
        starts[row:stop] += batch.start
        ends[row : stop - 1] = starts[row + 1 : stop]
        ends[stop - 1] = batch.stop
        row = stop
    return starts[:-1], ends


def _chain(data: bytes, batch: GroupedBatch) -> list[int]:
    starts: list[int] = []
    append = starts.append
    position = 0
    try:
        for _ in range(batch.header.records_count):
            append(position)
            if (length := data[position]) < 0x80:
                if length & 1:
                    raise LeftToScalarError
                position += 1 + (length >> 1)
            elif (second := data[position + 1]) < 0x80:
                if length & 1:
                    raise LeftToScalarError
                position += (length >> 1) + (second << 6) - 62
            else:
                length, position = decode_varint(data, position)
                if length < 0:
                    raise LeftToScalarError
                position += length
    except (IndexError, InvalidRecordError):
        raise LeftToScalarError from None
    if position != len(data):
        raise LeftToScalarError
    return starts
