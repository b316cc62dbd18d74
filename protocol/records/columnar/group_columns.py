"""The Arrow columns of a group's records.

The fields of all records of a group, as arrays; the layout is in `..record`.

Every field only moves the position forward. So where the position behind the last field is the record's end, all fields lay
inside the record; where it is not, what was read means nothing and the scalar codec says what is wrong.

The headers of all records of a group: the first header of each record at once, then the second, and so on.

Columns of records that the scalar codec has read: for batches that the vectorised one leaves to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ...errors import InvalidRecordError
from ...limits import INT64_MAX
from ...types import Record, TimestampType
from ..batch import LOG_APPEND_TIME_FLAG
from ..unpacking import INT64_MIN
from .record_starts import BatchGroup, record_starts
from .schema import TimestampUnit, Wanted, arrow_type, header_type
from .varints import LeftToScalarError, gather, read_varints, read_varlongs

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from .varints import Bools, Int64s, UInt8s

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
    """Return one array for each wanted column. Raises LeftToScalarError for anything that is not clearly valid."""
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


class Slices(NamedTuple):
    """Positions and lengths in the group's buffer; a negative length is null."""

    starts: Int64s
    lengths: Int64s


class Payload(NamedTuple):
    """The keys, values and headers that producers sent."""

    keys: Slices
    values: Slices
    headers: HeaderFields


class RecordHeads(NamedTuple):
    """The fields before the key, with one element per record; the key begins at `positions`."""

    timestamp_deltas: Int64s
    offset_deltas: Int64s
    positions: Int64s
    ends: Int64s
    """Of the records."""

    def check(self) -> None:
        """All that can be said of the heads alone. LeftToScalarError."""
        if (self.positions > self.ends).any():
            raise LeftToScalarError


def read_heads(group: BatchGroup) -> RecordHeads:
    """LeftToScalarError for anything that is not clearly as it should be."""
    import numpy as np

    data = np.frombuffer(group.buffer, np.uint8)
    starts, ends = record_starts(group)
    _, positions = read_varints(data, starts)
    timestamp_deltas, positions = read_varlongs(data, positions + 1)
    offset_deltas, positions = read_varints(data, positions)
    return RecordHeads(timestamp_deltas, offset_deltas, positions, ends)


def read_payload(group: BatchGroup, heads: RecordHeads) -> Payload:
    """Return the keys, values and headers after the heads. Raises LeftToScalarError for anything that is not clearly valid."""
    import numpy as np

    data = np.frombuffer(group.buffer, np.uint8)
    positions, ends = heads.positions, heads.ends
    key_lengths, key_starts = read_varints(data, positions)
    value_lengths, value_starts = read_varints(data, key_starts + np.maximum(key_lengths, 0))
    headers, positions = read_headers(data, value_starts + np.maximum(value_lengths, 0), ends)
    if (positions != ends).any():
        raise LeftToScalarError
    return Payload(Slices(key_starts, key_lengths), Slices(value_starts, value_lengths), headers)


MAX_HEADERS: Final = 64
"""Of one record here: there is a step for each, however few records have that many. More are left to the scalar codec."""


class HeaderFields(NamedTuple):
    """`counts` is per record, the rest per header, in their order: its record, and where key and value lie."""

    counts: Int64s
    records: Int64s
    key_starts: Int64s
    key_lengths: Int64s
    value_starts: Int64s
    value_lengths: Int64s


def read_headers(data: UInt8s, positions: Int64s, ends: Int64s) -> tuple[HeaderFields, Int64s]:
    """The headers, and the positions behind them. LeftToScalarError for negative lengths of keys, and for many headers."""
    import numpy as np

    counts, positions = read_varints(data, positions)
    rows = np.flatnonzero(counts)
    if rows.size and ((counts < 0) | (counts > MAX_HEADERS) | (counts > ends - positions)).any():
        raise LeftToScalarError
    steps = []
    remaining = counts[rows]
    while rows.size:
        key_lengths, key_starts = read_varints(data, positions[rows])
        if (key_lengths < 0).any():
            raise LeftToScalarError
        value_lengths, value_starts = read_varints(data, key_starts + key_lengths)
        positions[rows] = value_starts + np.maximum(value_lengths, 0)
        steps.append((rows, key_starts, key_lengths, value_starts, value_lengths))
        remaining -= 1
        rows, remaining = rows[remaining > 0], remaining[remaining > 0]
    if not steps:
        none = np.empty(0, np.int64)
        return HeaderFields(counts, none, none, none, none, none), positions
    columns = [np.concatenate(parts) for parts in zip(*steps, strict=True)]
    order = np.argsort(columns[1], kind="stable")
    return HeaderFields(counts, *(column[order] for column in columns)), positions


MICROSECONDS: Final = 1000
"""Of a millisecond."""
MAX_TIMESTAMP_MS: Final = INT64_MAX // MICROSECONDS


def columns_of(records: Sequence[Record], wanted: Wanted, timestamp_type: TimestampType) -> list[pa.Array]:
    """Return one array for each wanted column. InvalidRecordError for a timestamp that has no microseconds in 64 bits."""
    import pyarrow as pa

    made = []
    for name in wanted.columns:
        match name:
            case "key":
                cells: list[object] = [record.key for record in records]
            case "value":
                cells = [record.value for record in records]
            case "topic":
                cells = [wanted.topic] * len(records)
            case "partition":
                cells = [wanted.partition] * len(records)
            case "offset":
                cells = [record.offset for record in records]
            case "timestamp" if wanted.timestamp_unit == "ms":
                cells = [record.timestamp for record in records]
            case "timestamp":
                for record in records:
                    if not -MAX_TIMESTAMP_MS <= record.timestamp <= MAX_TIMESTAMP_MS:
                        raise unrepresentable(wanted.topic, wanted.partition, record.offset, record.timestamp)
                cells = [record.timestamp * MICROSECONDS for record in records]
            case "timestampType":
                cells = [int(timestamp_type)] * len(records)
            case _:
                cells = [[{"key": key, "value": value} for key, value in record.headers] for record in records]
        made.append(pa.array(cells, type=arrow_type(name, wanted.timestamp_unit)))
    return made


def unrepresentable(topic: str, partition: int, offset: int, timestamp: int) -> InvalidRecordError:
    """Return the error for a timestamp whose microseconds need more than 64 bits."""
    return InvalidRecordError(
        f"{topic}-{partition} offset {offset}: timestamp {timestamp} ms does not fit into microseconds of 64 "
        f"bits, at most {MAX_TIMESTAMP_MS} ms do. Read it without the column timestamp"
    )
