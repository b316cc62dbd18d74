"""Arrow columns to record batches, byte for byte what `BatchBuilder` makes of the same records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ...limits import INT64_MAX, MIB
from ...types import NO_TIMESTAMP, CompressionType
from ..batch import assemble_batch
from ..compression import compress
from .batch_cuts import batch_cuts, batch_runs
from .varint_bytes import byte_strings, varints
from .written_columns import WrittenColumns, interleave, lengths_of, written_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from .varints import Int64s

_ATTRIBUTES: Final = 0
_NO_HEADERS: Final = b"\x00"


@attrs.frozen
class Encoding:
    """How batches are cut and compressed. `batch_bytes` is before compression; `default_timestamp`, in ms, is for nulls."""

    compression: CompressionType = CompressionType.NONE
    batch_records: int = attrs.field(default=1000, validator=attrs.validators.ge(1))
    batch_bytes: int = attrs.field(default=MIB, validator=attrs.validators.ge(1))
    default_timestamp: int = NO_TIMESTAMP


@attrs.frozen
class Encoded:
    """One record batch: base offset 0, no producer, and how many records are in it."""

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
