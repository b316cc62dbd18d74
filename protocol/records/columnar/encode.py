"""Arrow columns to record batches, byte for byte what `BatchBuilder` makes of the same records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from ...limits import MIB
from ...types import NO_TIMESTAMP, CompressionType
from ..builder import build_batch

if TYPE_CHECKING:
    import pyarrow as pa

WRITTEN_COLUMNS: Final = ("value", "key", "timestamp", "headers")


@attrs.frozen
class Encoding:
    """How batches are cut and compressed. `batch_bytes` is before compression; `default_timestamp`, in ms, is for nulls."""

    compression: CompressionType = CompressionType.NONE
    batch_records: int = attrs.field(default=1000, validator=attrs.validators.ge(1))
    batch_bytes: int = MIB
    default_timestamp: int = NO_TIMESTAMP


@attrs.frozen
class Encoded:
    """One record batch: base offset 0, no producer, and how many records are in it."""

    data: bytes
    records: int


def encode_batches(rows: pa.RecordBatch, encoding: Encoding) -> list[Encoded]:
    """Encode the columns value (binary, null is a tombstone) and, where they are there, key (binary), timestamp
    (timestamp of any unit, or int64 milliseconds) and headers, in batches of at most `batch_records` records and
    `batch_bytes` bytes; a record above that has a batch of its own.

    ValueError for other columns or types, a header key that is null, a timestamp below -1.
    """
    import pyarrow as pa

    if "value" not in rows.schema.names or not set(rows.schema.names) <= set(WRITTEN_COLUMNS):
        raise ValueError(f"columns {', '.join(rows.schema.names)}: expected value, and any of {', '.join(WRITTEN_COLUMNS[1:])}")
    count = rows.num_rows
    values = rows.column("value").to_pylist()
    keys = rows.column("key").to_pylist() if "key" in rows.schema.names else [None] * count
    headers = rows.column("headers").to_pylist() if "headers" in rows.schema.names else [None] * count
    timestamps: list[Any] = [None] * count
    if "timestamp" in rows.schema.names:
        column = rows.column("timestamp")
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        timestamps = column.to_pylist()
    encoded = []
    for start in range(0, count, encoding.batch_records):
        stop = min(start + encoding.batch_records, count)
        data = build_batch(
            [
                (
                    encoding.default_timestamp if timestamps[row] is None else timestamps[row],
                    keys[row],
                    values[row],
                    [(header["key"], header["value"]) for header in headers[row] or ()],
                )
                for row in range(start, stop)
            ],
            compression_type=encoding.compression,
        )
        encoded.append(Encoded(data, stop - start))
    return encoded
