"""Columns of records that the scalar codec has read: for batches that the vectorised one leaves to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ...errors import InvalidRecordError
from ...limits import INT64_MAX
from ...types import Record, TimestampType
from .schema import arrow_type
from .wanted import Wanted

if TYPE_CHECKING:
    import pyarrow as pa

MICROSECONDS: Final = 1000
"""Of a millisecond."""
MAX_TIMESTAMP_MS: Final = INT64_MAX // MICROSECONDS


def columns_of(records: Sequence[Record], wanted: Wanted, timestamp_type: TimestampType) -> list[pa.Array]:
    """One array for each wanted column. InvalidRecordError for a timestamp that has no microseconds in 64 bits."""
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
    """What a timestamp is answered with whose microseconds need more than 64 bits."""
    return InvalidRecordError(
        f"{topic}-{partition} offset {offset}: timestamp {timestamp} ms does not fit into microseconds of 64 bits, at most "
        f"{MAX_TIMESTAMP_MS} ms do; read it without the column timestamp"
    )
