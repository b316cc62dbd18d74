"""The Arrow columns of a group's records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...limits import INT64_MAX
from ..batch import LOG_APPEND_TIME_FLAG
from ..payload import INT64_MIN
from .batch_groups import BatchGroup
from .fields import Payload, RecordFields, Slices, read_fields
from .gather import gather
from .row_columns import MAX_TIMESTAMP_MS, MICROSECONDS
from .schema import arrow_type, header_type
from .varints import LeftToScalarError
from .wanted import Wanted

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from .varints import Bools, Int64s

PAYLOAD_COLUMNS = frozenset({"key", "value", "headers"})


class _Rows(NamedTuple):
    """The records of a group that are wanted; `chosen` is None when all are."""

    group: BatchGroup
    counts: Int64s
    fields: RecordFields
    offsets: Int64s
    chosen: Bools | None

    def choose(self, values: Int64s) -> Int64s:
        return values if self.chosen is None else values[self.chosen]

    def each_batch(self, values: Sequence[int]) -> Int64s:
        """A value per batch, for every record that is wanted."""
        import numpy as np

        return self.choose(np.repeat(np.array(values, np.int64), self.counts))

    @property
    def payload(self) -> Payload:
        assert self.fields.payload is not None
        return self.fields.payload


def group_columns(group: BatchGroup, wanted: Wanted) -> list[pa.Array]:
    """One array for each wanted column. LeftToScalarError for anything that is not clearly as it should be."""
    import numpy as np
    import pyarrow as pa

    fields = read_fields(group, with_payload=not PAYLOAD_COLUMNS.isdisjoint(wanted.columns))
    counts = np.array([batch.header.records_count for batch in group.batches], np.int64)
    offsets = _sums([batch.header.base_offset for batch in group.batches], fields.offset_deltas, counts)
    timestamps = _sums([batch.header.base_timestamp for batch in group.batches], fields.timestamp_deltas, counts)
    is_inside = (offsets >= wanted.low) & (offsets < wanted.high)
    rows = _Rows(group, counts, fields, offsets, None if is_inside.all() else is_inside)
    offsets = rows.choose(offsets)
    made: list[pa.Array] = []
    for name in wanted.columns:
        match name:
            case "key":
                made.append(_binary(rows, rows.payload.keys))
            case "value":
                made.append(_binary(rows, rows.payload.values))
            case "topic":
                made.append(pa.repeat(pa.scalar(wanted.topic, pa.string()), len(offsets)))
            case "partition":
                made.append(_primitive(np.full(len(offsets), wanted.partition, np.int32), name))
            case "offset":
                made.append(_primitive(offsets, name))
            case "timestamp":
                made.append(_primitive(_microseconds(rows, rows.choose(timestamps)), name))
            case "timestampType":
                made.append(_primitive((rows.each_batch(_append_time_flags(group)) != 0).astype(np.int32), name))
            case _:
                made.append(_headers(rows))
    return made


def _sums(bases: list[int], deltas: Int64s, counts: Int64s) -> Int64s:
    """Base and delta of each record; LeftToScalarError when one could need more than 64 bits."""
    import numpy as np

    if max(bases) + int(deltas.max()) > INT64_MAX or min(bases) + int(deltas.min()) < INT64_MIN:
        raise LeftToScalarError
    sums: Int64s = np.repeat(np.array(bases, np.int64), counts) + deltas
    return sums


def _append_time_flags(group: BatchGroup) -> list[int]:
    """Not 0 for the batches under LogAppendTime."""
    return [batch.header.attributes & LOG_APPEND_TIME_FLAG for batch in group.batches]


def _microseconds(rows: _Rows, timestamps: Int64s) -> Int64s:
    flags = _append_time_flags(rows.group)
    if any(flags):
        import numpy as np

        append_times = rows.each_batch([batch.header.max_timestamp for batch in rows.group.batches])
        timestamps = np.where(rows.each_batch(flags) != 0, append_times, timestamps)
    if timestamps.size and not -MAX_TIMESTAMP_MS <= timestamps.min() <= timestamps.max() <= MAX_TIMESTAMP_MS:
        raise LeftToScalarError
    return timestamps * MICROSECONDS


def _primitive(values: npt.NDArray[np.signedinteger], column: str) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(arrow_type(column), len(values), [None, pa.py_buffer(values)])


def _binary(rows: _Rows, slices: Slices) -> pa.Array:
    return gather(rows.group.buffer, rows.choose(slices.starts), rows.choose(slices.lengths))


def _headers(rows: _Rows) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    headers = rows.payload.headers
    counts = rows.choose(headers.counts)
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    starts, lengths = headers.key_starts, headers.key_lengths
    value_starts, value_lengths = headers.value_starts, headers.value_lengths
    if rows.chosen is not None:
        chosen = rows.chosen[headers.records]
        starts, lengths = starts[chosen], lengths[chosen]
        value_starts, value_lengths = value_starts[chosen], value_lengths[chosen]
    keys = gather(rows.group.buffer, starts, lengths)
    names = pa.Array.from_buffers(pa.string(), len(keys), keys.buffers())
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raise LeftToScalarError from None  # not UTF-8: it is read with replacements
    values = gather(rows.group.buffer, value_starts, value_lengths)
    structs = pa.StructArray.from_arrays([names, values], fields=list(header_type()))
    return pa.Array.from_buffers(arrow_type("headers"), len(counts), [None, pa.py_buffer(offsets)], children=[structs])
