"""Tables as a stream of record batches: what is in memory, a stream, or a file of Parquet, Arrow or CSV."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

from ..report import ArrowError

ROWS: Final = 1 << 14
"""Of a batch that is read from Parquet."""
PIECE_BYTES: Final = 8 << 20
"""Rows are encoded together up to about this."""
SUFFIXES: Final = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".arrows": "arrow",
    ".csv": "csv",
}
FILE_FORMATS: Final = ("parquet", "arrow", "csv")


@attrs.frozen
class TableInput:
    """Batches of one schema, read once."""

    name: str
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    rows: int | None = None
    """In all, where that is known before."""

    def pieces(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Some rows at a time, with the number of the first. ArrowError for what cannot be read."""
        first = 0
        while True:
            try:
                batch = next(self.batches, None)
            except (pa.ArrowException, OSError) as exc:
                raise ArrowError(f"{self.name}: after row {first}: {' '.join(str(exc).split())}") from exc
            if batch is None:
                return
            count = max(1, min(ROWS, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes)))
            for start in range(0, batch.num_rows, count):
                piece = _without_views(batch.slice(start, count))
                yield first, piece
                first += piece.num_rows


def open_table(source: Any, file_format: str | None = None) -> TableInput:
    """A table, batch, reader, path, or whatever hands out Arrow's C stream (Polars, pandas, DuckDB). ArrowError for others."""
    if isinstance(source, (str, os.PathLike)):
        return _open_file(os.fspath(source), file_format)
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return TableInput("the table", source.schema, iter(source.to_batches()), source.num_rows)
    if isinstance(source, pa.RecordBatchReader):
        return TableInput("the stream", source.schema, iter(source))
    if hasattr(source, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(source)
        return TableInput(f"the {type(source).__name__}", reader.schema, iter(reader))
    raise ArrowError(
        f"{type(source).__name__} is not a table. Use one of Arrow, Polars, pandas or DuckDB, a reader or a file's name"
    )


def _without_views(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Text and bytes as they are elsewhere; Polars hands out views."""
    plain = [
        pa.string() if pa.types.is_string_view(kind) else pa.binary() if pa.types.is_binary_view(kind) else kind
        for kind in rows.schema.types
    ]
    if plain == rows.schema.types:
        return rows
    columns = [column.cast(kind) for column, kind in zip(rows.columns, plain, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _open_file(path: str, file_format: str | None) -> TableInput:
    kind = file_format or SUFFIXES.get(Path(path).suffix.lower())
    if kind not in FILE_FORMATS:
        raise ArrowError(
            f"{path}: its name does not end in {', '.join(SUFFIXES)}, and file_format is not one of {', '.join(FILE_FORMATS)}"
        )
    try:
        if kind == "parquet":
            import pyarrow.parquet as pq

            file = pq.ParquetFile(path)
            return TableInput(path, file.schema_arrow, file.iter_batches(ROWS), file.metadata.num_rows)
        if kind == "csv":
            import pyarrow.csv as pc

            reader = pc.open_csv(path)
            return TableInput(path, reader.schema, iter(reader))
        return _open_arrow(path)
    except (pa.ArrowException, OSError) as exc:
        raise ArrowError(f"{path}: {' '.join(str(exc).split())}") from exc


def _open_arrow(path: str) -> TableInput:
    """The file or the stream format."""
    source = pa.OSFile(path)
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        return TableInput(path, stream.schema, iter(stream))
    return TableInput(path, file.schema, (file.get_batch(number) for number in range(file.num_record_batches)))
