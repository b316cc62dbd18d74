"""The columns that are encoded, as arrays: checked, and with the types that encoding works on."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple

from ...limits import INT32_MAX
from ...types import NO_TIMESTAMP
from ..varint import MAX_VARINT_BYTES
from .varint_bytes import byte_strings, varints

if TYPE_CHECKING:
    import pyarrow as pa

    from .varints import Int64s

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
        raise ValueError(f"headers could have {most} bytes, at most {INT32_MAX} are possible; encode fewer rows at once")
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
