"""Files of records: Parquet, Arrow's file format, and text, of which the caller makes the lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...protocol.types import Record, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS: Final = ("parquet", "arrow", "csv", "jsonl")
ToLine = Callable[[TopicPartition, Record], bytes]
CSV_HEAD: Final = b"topic,partition,offset,timestamp,key,value,headers\n"


class FileWriter(Protocol):
    """An open output file. Owner: its opener."""

    def write(self, rows: pa.Table) -> None:
        """Rows, in their order."""

    def close(self) -> None:
        """It is whole."""


def open_writer(
    format_name: str, path: Path, schema: pa.Schema, compression: str, topic: str, to_line: ToLine | None
) -> FileWriter:
    """Open a writer for one of FORMATS; text needs `to_line`, and has all columns. OSError."""
    if format_name == "parquet":
        return _Parquet(path, schema, compression)
    if format_name == "arrow":
        return _Arrow(path, schema, compression)
    assert to_line is not None
    return _Lines(path, topic, to_line, CSV_HEAD if format_name == "csv" else b"")


class _Parquet:
    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        import pyarrow.parquet as pq

        self._writer: Any = pq.ParquetWriter(path, schema, compression=compression)

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=1 << 30)

    def close(self) -> None:
        self._writer.close()


class _Arrow:
    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        import pyarrow as pa

        kind = compression if compression in ("zstd", "lz4") else None
        self._writer: Any = pa.ipc.new_file(str(path), schema, options=pa.ipc.IpcWriteOptions(compression=kind))

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)

    def close(self) -> None:
        self._writer.close()


class _Lines:
    def __init__(self, path: Path, topic: str, to_line: ToLine, head: bytes) -> None:
        self._file = path.open("xb")
        self._topic = topic
        self._to_line = to_line
        self._file.write(head)

    def write(self, rows: pa.Table) -> None:
        import pyarrow as pa

        times = rows.column("timestamp").cast(pa.int64()).to_pylist()
        columns = [rows.column(name).to_pylist() for name in ("partition", "offset", "key", "value", "headers")]
        for at, partition, offset, key, value, headers in zip(times, *columns, strict=True):
            pairs = tuple((header["key"], header["value"]) for header in headers)
            record = Record(offset, -1 if at < 0 else at // 1000, key, value, pairs)
            self._file.write(self._to_line(TopicPartition(self._topic, partition), record))

    def close(self) -> None:
        self._file.close()
