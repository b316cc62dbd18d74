"""The Arrow columns of a group's records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...limits import INT64_MAX
from ..batch import LOG_APPEND_TIME_FLAG
from ..payload import INT64_MIN
from .batch_groups import BatchGroup
from .fields import Payload, Slices, read_heads, read_payload
from .gather import gather
from .header_fields import HeaderFields
from .row_columns import MAX_TIMESTAMP_MS, MICROSECONDS
from .schema import TimestampUnit, arrow_type, header_type
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
    chosen: Bools | None

    def choose(self, values: Int64s) -> Int64s:
        return values if self.chosen is None else values[self.chosen]

    def each_batch(self, values: Sequence[int]) -> Int64s:
        """A value per batch, for every record that is wanted."""
        import numpy as np

        return self.choose(np.repeat(np.array(values, np.int64), self.counts))


def group_columns(group: BatchGroup, wanted: Wanted) -> list[pa.Array]:
    """One array for each wanted column. LeftToScalarError for anything that is not clearly as it should be."""
    import numpy as np
    import pyarrow as pa

    heads = read_heads(group)
    counts = np.array([batch.header.records_count for batch in group.batches], np.int64)
    offsets = _sums([batch.header.base_offset for batch in group.batches], heads.offset_deltas, counts)
    timestamps = _sums([batch.header.base_timestamp for batch in group.batches], heads.timestamp_deltas, counts)
    timestamps = _with_append_times(group, counts, timestamps)
    is_inside = (offsets >= wanted.low) & (offsets < wanted.high)
    if wanted.has_times:
        is_inside &= timestamps >= wanted.least_timestamp
        if wanted.end_timestamp is not None:
            is_inside &= timestamps < wanted.end_timestamp
    payload = None
    if PAYLOAD_COLUMNS.isdisjoint(wanted.columns) or (wanted.has_times and not is_inside.any()):
        heads.check()
    else:
        payload = read_payload(group, heads)
    rows = _Rows(group, counts, None if is_inside.all() else is_inside)
    offsets = rows.choose(offsets)
    made: list[pa.Array] = []
    for name in wanted.columns:
        match name:
            case "topic":
                made.append(pa.repeat(pa.scalar(wanted.topic, pa.string()), len(offsets)))
            case "partition":
                made.append(_primitive(np.full(len(offsets), wanted.partition, np.int32), arrow_type(name)))
            case "offset":
                made.append(_primitive(offsets, arrow_type(name)))
            case "timestamp":
                made.append(_timestamps(rows.choose(timestamps), wanted.timestamp_unit))
            case "timestampType":
                flags = rows.each_batch(_append_time_flags(group))
                made.append(_primitive((flags != 0).astype(np.int32), arrow_type(name)))
            case _:
                made.append(_payload_column(rows, payload, name))
    return made


def _payload_column(rows: _Rows, payload: Payload | None, name: str) -> pa.Array:
    if payload is None:  # no record is wanted
        import pyarrow as pa

        return pa.array([], arrow_type(name))
    if name == "headers":
        return _headers(rows, payload.headers)
    return _binary(rows, payload.keys if name == "key" else payload.values)


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


def _with_append_times(group: BatchGroup, counts: Int64s, timestamps: Int64s) -> Int64s:
    """Under LogAppendTime the batch's."""
    flags = _append_time_flags(group)
    if not any(flags):
        return timestamps
    import numpy as np

    append_times = np.array([batch.header.max_timestamp for batch in group.batches], np.int64)
    return np.where(np.repeat(np.array(flags), counts) != 0, np.repeat(append_times, counts), timestamps)


def _timestamps(timestamps: Int64s, unit: TimestampUnit) -> pa.Array:
    if unit == "us":
        if timestamps.size and not -MAX_TIMESTAMP_MS <= timestamps.min() <= timestamps.max() <= MAX_TIMESTAMP_MS:
            raise LeftToScalarError
        timestamps = timestamps * MICROSECONDS
    return _primitive(timestamps, arrow_type("timestamp", unit))


def _primitive(values: npt.NDArray[np.signedinteger], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _binary(rows: _Rows, slices: Slices) -> pa.Array:
    return gather(rows.group.buffer, rows.choose(slices.starts), rows.choose(slices.lengths))


def _headers(rows: _Rows, headers: HeaderFields) -> pa.Array:
    import numpy as np
    import pyarrow as pa

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
