"""Arrow columns to record batches, byte for byte what `BatchBuilder` makes of the same records.

Where one batch ends and the next begins.

The columns that are encoded, as arrays: checked, and with the types that encoding works on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from ...limits import INT32_MAX, INT64_MAX, MIB
from ...types import NO_TIMESTAMP, CompressionType
from ..batch import RECORD_BATCH_OVERHEAD, assemble_batch
from ..compression import compress
from ..varint import MAX_VARINT_BYTES, encode_varint, encode_varlong
from .varints import byte_strings, varints

if TYPE_CHECKING:
    import pyarrow as pa

    from .varints import Int64s

_ATTRIBUTES: Final = 0
_NO_HEADERS: Final = b"\x00"


@attrs.frozen
class Encoding:
    """Settings that cut and compress batches. `batch_bytes` is before compression. `default_timestamp` (ms) is for nulls."""

    compression: CompressionType = CompressionType.NONE
    batch_records: int = attrs.field(default=1000, validator=attrs.validators.ge(1))
    batch_bytes: int = attrs.field(default=MIB, validator=attrs.validators.ge(1))
    default_timestamp: int = NO_TIMESTAMP


@attrs.frozen
class Encoded:
    """A record batch with base offset 0 and without a producer, and its number of records."""

    data: bytes
    records: int


def encode_batches(rows: pa.RecordBatch, encoding: Encoding) -> list[Encoded]:
    """Encode the columns value (binary or string, null is a tombstone) and, where they are there, key (binary or string),
    timestamp (of any unit, or int64 milliseconds; rounded down to milliseconds) and headers (as in `schema`, null is none).

    Batches have at most `batch_records` records and `batch_bytes` bytes, these reckoned with the longest deltas that there
    can be; a record above that has a batch of its own. The first record's timestamp is the batch's base_timestamp.

    ValueError for other columns or types, a header key that is null, a timestamp below -1, a batch above 2 GiB.
    """
    columns = written_columns(rows, encoding.default_timestamp)
    if not rows.num_rows:
        return []
    cuts, sizes = batch_cuts(columns, encoding.batch_records, encoding.batch_bytes)
    encoded: list[Encoded] = []
    for first, last in batch_runs(sizes):
        start, stop = int(cuts[first]), int(cuts[last])
        encoded += _encode_run(columns.slice(start, stop), cuts[first : last + 1] - start, encoding.compression)
    return encoded


def _encode_run(columns: WrittenColumns, cuts: Int64s, compression: CompressionType) -> list[Encoded]:
    import numpy as np

    counts = np.diff(cuts)
    timestamps = columns.timestamps
    bases = timestamps[cuts[:-1]]
    timestamp_deltas = timestamps - np.repeat(bases, counts)
    offset_deltas = np.arange(len(timestamps)) - np.repeat(cuts[:-1], counts)
    data, starts = _encode_records(columns, timestamp_deltas, offset_deltas)
    max_timestamps = np.maximum.reduceat(timestamps, cuts[:-1]).tolist()
    records = memoryview(data)
    encoded = []
    positions = starts[cuts].tolist()
    for index, (count, base) in enumerate(zip(counts.tolist(), bases.tolist(), strict=True)):
        if max_timestamps[index] - base > INT64_MAX:
            raise ValueError(
                f"timestamp {max_timestamps[index]} lies more than 64 bits after the base timestamp {base} of its batch"
            )
        piece = records[positions[index] : positions[index + 1]]
        batch = assemble_batch(
            piece if compression == CompressionType.NONE else compress(compression, piece),
            base_offset=0,
            last_offset_delta=count - 1,
            records_count=count,
            attributes=compression,
            base_timestamp=base,
            max_timestamp=max_timestamps[index],
        )
        encoded.append(Encoded(batch, count))
    return encoded


def _encode_records(columns: WrittenColumns, timestamp_deltas: Int64s, offset_deltas: Int64s) -> tuple[pa.Buffer, Int64s]:
    """All records one behind another, and where each starts, with the end as one more."""
    import numpy as np
    import pyarrow as pa

    headers = columns.headers
    if headers is None:
        headers = pa.repeat(pa.scalar(_NO_HEADERS, pa.binary()), len(offset_deltas))
    key_lengths, value_lengths = lengths_of(columns.keys), lengths_of(columns.values)
    timestamps, offsets = varints(timestamp_deltas), varints(offset_deltas)
    keys, values = varints(key_lengths), varints(value_lengths)
    lengths = lengths_of(headers) + 1  # the attributes
    for field in (timestamps, offsets, keys, values):
        lengths += field.sizes
    for payload in (key_lengths, value_lengths):
        lengths += np.maximum(payload, 0)
    before_keys = byte_strings([varints(lengths), _ATTRIBUTES, timestamps, offsets, keys])
    before_values = byte_strings([values])
    return interleave([before_keys, columns.keys, before_values, columns.values, headers])


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


WRITTEN_COLUMNS: Final = ("value", "key", "timestamp", "headers")
_UNITS_PER_MS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}


class WrittenColumns(NamedTuple):
    """Binary columns, and timestamps in ms. `headers` holds each record's headers as they are stored, their count first."""

    keys: pa.Array
    values: pa.Array
    timestamps: Int64s
    headers: pa.Array | None
    """None: no record has any."""

    def slice(self, start: int, stop: int) -> WrittenColumns:
        """The rows from `start` up to, exclusive, `stop`. Nothing is copied."""
        headers = None if self.headers is None else self.headers.slice(start, stop - start)
        size = stop - start
        return WrittenColumns(
            self.keys.slice(start, size), self.values.slice(start, size), self.timestamps[start:stop], headers
        )


def written_columns(rows: pa.RecordBatch, default_timestamp: int) -> WrittenColumns:
    """Raises what `encode_batches` says."""
    import numpy as np
    import pyarrow as pa

    names = rows.schema.names
    if "value" not in names or not set(names) <= set(WRITTEN_COLUMNS) or len(set(names)) < len(names):
        raise ValueError(f"columns {', '.join(names)}: expected value, and any of {', '.join(WRITTEN_COLUMNS[1:])}, once each")
    if default_timestamp < NO_TIMESTAMP:
        raise ValueError(f"default timestamp {default_timestamp} is neither {NO_TIMESTAMP} nor at least 0")
    keys = _binary(rows.column("key"), "key") if "key" in names else pa.nulls(rows.num_rows, pa.binary())
    if "timestamp" in names:
        timestamps = _milliseconds(rows.column("timestamp"), default_timestamp)
    else:
        timestamps = np.full(rows.num_rows, default_timestamp, np.int64)
    headers = _headers(rows.column("headers")) if "headers" in names else None
    return WrittenColumns(keys, _binary(rows.column("value"), "value"), timestamps, headers)


def lengths_of(column: pa.Array) -> Int64s:
    """Of the cells of a binary column; -1 for nulls."""
    import numpy as np

    offsets = np.frombuffer(column.buffers()[1] or b"\0\0\0\0", np.int32)[column.offset : column.offset + len(column) + 1]
    lengths: Int64s = np.diff(offsets).astype(np.int64)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths


def _binary(column: pa.Array, name: str) -> pa.Array:
    import pyarrow as pa

    if column.type == pa.binary():
        return column
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if is_text or pa.types.is_large_binary(column.type) or pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.binary())
    raise ValueError(f"column {name} has type {column.type}, expected binary or string")


def _milliseconds(column: pa.Array, default_timestamp: int) -> Int64s:
    import numpy as np
    import pyarrow as pa

    is_time = pa.types.is_timestamp(column.type)
    if not is_time and column.type != pa.int64():
        raise ValueError(f"column timestamp has type {column.type}, expected timestamp or int64 milliseconds")
    units = column.view(pa.int64()).fill_null(0).to_numpy()
    if not is_time or column.type.unit == "ms":
        timestamps: Int64s = units
    elif column.type.unit == "s":
        timestamps = column.cast(pa.timestamp("ms", column.type.tz)).view(pa.int64()).fill_null(0).to_numpy()
    else:
        timestamps = units // _UNITS_PER_MS[column.type.unit]
    if column.null_count:
        timestamps = np.where(column.is_null().to_numpy(zero_copy_only=False), default_timestamp, timestamps)
    if timestamps.size and (least := int(timestamps.min())) < NO_TIMESTAMP:
        row = int(timestamps.argmin())
        raise ValueError(f"row {row}: timestamp {least} ms is neither {NO_TIMESTAMP} nor at least 0")
    return timestamps


def _headers(column: pa.Array) -> pa.Array | None:
    import numpy as np
    import pyarrow as pa

    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if not is_list or not pa.types.is_struct(column.type.value_type) or column.type.value_type.names != ["key", "value"]:
        raise ValueError(f"column headers has type {column.type}, expected list<struct<key: string, value: binary>>")
    counts = column.value_lengths().fill_null(0).cast(pa.int64()).to_numpy()
    if not counts.any():
        return None
    names, contents = column.flatten().flatten()
    names, contents = _binary(names, "headers.key"), _binary(contents, "headers.value")
    firsts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=firsts[1:])
    if names.null_count:
        missing = names.is_null().index(pa.scalar(True)).as_py()
        raise ValueError(f"row {int(np.searchsorted(firsts, missing, 'right')) - 1}: a header key is null")
    if (most := names.nbytes + contents.nbytes + MAX_VARINT_BYTES * (2 * len(names) + len(counts))) > INT32_MAX:
        raise ValueError(f"headers could have {most} bytes, at most {INT32_MAX} are possible. Encode fewer rows at once")
    encoded, starts = interleave(
        [
            byte_strings([varints(lengths_of(names))]),
            names,
            byte_strings([varints(lengths_of(contents))]),
            contents,
        ]
    )
    ends = np.ascontiguousarray(starts[firsts], np.int32)
    joined = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(ends), encoded])
    with_counts, starts = interleave([byte_strings([varints(counts)]), joined])
    return pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(starts.astype(np.int32)), with_counts])


def interleave(columns: list[pa.Array]) -> tuple[pa.Buffer, Int64s]:
    """Rows of binary columns one behind another: the bytes, and where each row starts, with the end as one more.

    All of it must be below 2 GiB, which is not checked. Nulls are nothing.
    """
    import numpy as np
    import pyarrow as pa

    width, count = len(columns), len(columns[0])
    joined = pa.concat_arrays(columns).take(_by_rows(width, count))
    offsets = np.frombuffer(joined.buffers()[1], np.int32)[: width * count + 1]
    return joined.buffers()[2], offsets[::width].astype(np.int64)


@functools.lru_cache(maxsize=2)  # runs of one column have the same number of rows nearly always
def _by_rows(width: int, count: int) -> pa.Array:
    """The places of cells row by row, of columns one behind another."""
    import numpy as np
    import pyarrow as pa

    return pa.array(np.arange(width * count, dtype=np.int32).reshape(width, count).T.ravel())
