"""`write`: the rows of a table become records of a topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Literal

from ....protocol.types import CompressionType
from ..errors import ArrowError
from ..sources import Source, address_of
from .written import Written

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

    Args:
        target: `HOST:PORT` of a server's native protocol, or an embedded broker.
        topic: It exists.
        table: A table, record batch or reader of pyarrow, a frame of Polars or pandas, a relation of DuckDB, or the name of a
            Parquet, Arrow or CSV file.
        key: The column with the key; what is neither text nor bytes is written as text. The key's partition is Kafka's.
        value: The column with the value: text, bytes, or a struct that is written in the format. None: the whole row.
        timestamp: The column with the time: a timestamp, a date, or milliseconds. None, or null: the time of the write.
        partition: A number for all rows, or the column that has it. None: the key's; without keys they take turns.
        format: Of the value. `raw` takes the columns key, value, timestamp and headers as `read` gives them.
        schema: The Avro schema, as JSON text or what that means.
        compression: Of record batches.
        file_format: Of a file whose name does not tell.
        login: Who writes, at a server with logins.
        tls: How the connection is encrypted.
        timeout_ms: How long a batch is tried again.
        progress: Is told now and then what is acknowledged, and how many rows there are, where that is known.

    Raises:
        ArrowError: For what cannot be written; it says how many records were acknowledged before.
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
                    delivery.put(number, batch)
            if progress is not None:
                progress(delivery.written, rows.rows)
        delivery.flush()
    return delivery.written
