"""`write`: the rows of a table become records of a topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Literal

from ....protocol.types import CompressionType
from ..report import ArrowError, Written
from ..sources import Source, address_of

if TYPE_CHECKING:
    from ...client.login import LoginConfig
    from ...client.tls import TlsConfig

BATCH_BYTES: Final = 256 << 10
BATCH_RECORDS: Final = 4_000


def write(
    target: Source,
    topic: str,
    table: Any,
    *,
    key: str | None = None,
    value: str | None = None,
    timestamp: str | None = None,
    partition: int | str | None = None,
    format: Literal["json", "msgpack", "avro", "raw"] = "json",  # noqa: A002
    schema: Any = None,
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none",
    file_format: Literal["parquet", "arrow", "csv"] | None = None,
    login: LoginConfig | None = None,
    tls: TlsConfig | None = None,
    timeout_ms: int = 120_000,
    progress: Callable[[Written, int | None], None] | None = None,
) -> Written:
    """Write each row as a record, once, and wait until all are acknowledged. Some rows at a time are in memory.

    `target` is `HOST:PORT` of a server's native protocol or an embedded broker, where the topic exists. `table` is a table,
    record batch or reader of pyarrow, a frame of Polars or pandas, a relation of DuckDB, or the name of a Parquet, Arrow or
    CSV file (`file_format`, where the name does not tell).

    `key` is the column with the key; what is neither text nor bytes is written as text. `value` is the column with the value:
    text, bytes, or a struct that is written in the `format`; None is the whole row. `timestamp` is the column with the time: a
    timestamp, a date, or milliseconds; null, or no column, is the time of the write. `partition` is a number for all rows, or
    the column that has it; None is the key's as Kafka's producers have it, and without keys they take turns. The format raw
    takes the columns key, value, timestamp and headers as `read` gives them; avro needs its `schema`, as JSON text or what
    that means.

    `login` and `tls` are for servers that ask for them. A batch is tried again for `timeout_ms`. `progress` is told now and
    then what is acknowledged, and how many rows there are, where that is known.

    Raises ArrowError for what cannot be written, in one line.
    """
    from ....protocol.records.columnar.encode import Encoding, encode_batches
    from .delivery import Delivery
    from .rows import row_shape
    from .tables import open_table

    if compression.upper() not in CompressionType.__members__:
        raise ArrowError(f"compression is {compression!r}, expected {', '.join(each.name.lower() for each in CompressionType)}")
    address = address_of(target)
    rows = open_table(table, file_format)
    with closing(Delivery(address, topic, login=login, tls=tls, timeout_ms=timeout_ms)) as delivery:
        partitions, most_bytes = delivery.begin()
        shape = row_shape(
            rows.name,
            rows.schema,
            partitions,
            key=key,
            value=value,
            timestamp=timestamp,
            partition=partition,
            value_format=format,
            value_schema=schema,
        )
        for first, piece in rows.pieces():
            encoding = Encoding(
                CompressionType[compression.upper()],
                BATCH_RECORDS,
                min(BATCH_BYTES, most_bytes),
                time.time_ns() // 1_000_000,
            )
            for number, records in shape.records(first, piece):
                try:
                    encoded = encode_batches(records, encoding)
                except ValueError as exc:
                    raise ArrowError(f"{rows.name}: rows {first} to {first + piece.num_rows - 1}: {exc}") from exc
                for batch in encoded:
                    delivery.add(number, batch)
            if progress is not None:
                progress(delivery.written, rows.rows)
        delivery.flush()
    return delivery.written
