"""Where one batch ends and the next begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...limits import INT32_MAX, MIB
from ..batch import RECORD_BATCH_OVERHEAD
from ..varint import MAX_VARINT_BYTES, encode_varint, encode_varlong
from .varint_bytes import varints
from .written_columns import WrittenColumns, lengths_of

if TYPE_CHECKING:
    from .varints import Int64s

RUN_BYTES: Final = 4 * MIB
"""Batches are encoded together up to this: arrays of a run then stay in the processor's cache."""


def batch_cuts(columns: WrittenColumns, batch_records: int, batch_bytes: int) -> tuple[Int64s, Int64s]:
    """The first row of each batch, with the end as one more, and the most bytes that each batch can have.

    ValueError when one record can have more than a batch of 2 GiB takes.
    """
    import numpy as np

    count = len(columns.values)
    cuts = np.append(np.arange(0, count, batch_records), count)
    room = batch_bytes - RECORD_BATCH_OVERHEAD
    most = _most_bytes_of_any(columns, batch_records)
    if min(batch_records, count) * most <= min(room, INT32_MAX - RECORD_BATCH_OVERHEAD):
        return cuts, np.diff(cuts) * most + RECORD_BATCH_OVERHEAD
    totals = np.zeros(count + 1, np.int64)
    np.cumsum(_most_bytes(columns, batch_records), out=totals[1:])
    if (np.diff(totals[cuts]) > room).any():
        found = [0]
        while (start := found[-1]) < count:
            stop = int(np.searchsorted(totals, totals[start] + room, "right")) - 1
            found.append(min(max(stop, start + 1), start + batch_records, count))
        cuts = np.array(found, np.int64)
    sizes: Int64s = np.diff(totals[cuts]) + RECORD_BATCH_OVERHEAD
    if (most := int(sizes.max())) > INT32_MAX:
        row = int(cuts[sizes.argmax()])
        raise ValueError(f"the batch that begins at row {row} could have {most} bytes, at most {INT32_MAX} are possible")
    return cuts, sizes


def batch_runs(sizes: Int64s) -> Iterator[tuple[int, int]]:
    """Numbers of the first batch and of the one behind the last, for each run that is encoded at once."""
    first = total = 0
    for number, size in enumerate(sizes.tolist()):
        if number > first and total + size > RUN_BYTES:
            yield first, number
            first, total = number, 0
        total += size
    yield first, len(sizes)


def _most_bytes(columns: WrittenColumns, batch_records: int) -> Int64s:
    """Of each record, whatever batch it comes to be in."""
    import numpy as np

    payload_bytes = np.full(len(columns.values), _most_overhead_bytes(columns, batch_records), np.int64)
    for column in (columns.keys, columns.values):
        lengths = lengths_of(column)
        payload_bytes += varints(lengths).sizes + np.maximum(lengths, 0)
    return payload_bytes + (1 if columns.headers is None else lengths_of(columns.headers))


def _most_bytes_of_any(columns: WrittenColumns, batch_records: int) -> int:
    """No record has more; where sizes differ much it is a multiple of what most of them have."""
    most = _most_overhead_bytes(columns, batch_records)
    for column in (columns.keys, columns.values):
        length = int(lengths_of(column).max())
        most += len(encode_varint(length)) + max(length, 0)
    return most + (1 if columns.headers is None else int(lengths_of(columns.headers).max()))


def _most_overhead_bytes(columns: WrittenColumns, batch_records: int) -> int:
    """Length, attributes and deltas of a record."""
    timestamps = columns.timestamps
    range_ms = int(timestamps.max()) - int(timestamps.min())
    offset_bytes = len(encode_varint(min(batch_records, len(timestamps))))
    return MAX_VARINT_BYTES + 1 + len(encode_varlong(-range_ms)) + offset_bytes
