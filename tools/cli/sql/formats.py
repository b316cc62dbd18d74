"""An answer written out as it comes, and its cells: a table, JSON lines, CSV, Parquet. All but the table hold one batch."""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from ....server.system import syncs
from ..terminal.output import as_json_value, count_text, draw, flush, json_line, printable, say, shown, table, write

FORMATS = ("table", "csv", "json", "parquet")
Write = Callable[[bytes], object]


def show_table(schema: pa.Schema, batches: Iterable[pa.RecordBatch], max_rows: int) -> None:
    """The first rows as a table, and whether there are more."""
    rows: list[list[str]] = []
    has_more = False
    for batch in batches:
        taken = batch.slice(0, max_rows - len(rows))
        columns = [[as_text(cell) for cell in cells(column)] for column in taken.columns]
        rows += [list(row) for row in zip(*columns, strict=True)]
        if has_more := taken.num_rows < batch.num_rows:
            break
    heads = {
        name: "right" if is_number(kind) else "left" for name, kind in zip(_unique(schema.names), schema.types, strict=True)
    }
    draw(table(heads, rows))
    if has_more:
        say(f"the first {count_text(max_rows, 'row')}; --max N shows more, --format csv, json or parquet has all")


def write_rows(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], format_name: str, write: Write, *, in_lines: bool = False
) -> None:
    """JSON lines or CSV. `in_lines`: each row is one line whatever is in its cells, for people."""

    def text_of(cell: Any) -> Any:
        text = as_csv(cell)
        return printable(text) if in_lines and isinstance(text, str) else text

    if format_name == "csv":
        write(_csv_lines([[printable(name) if in_lines else name for name in schema.names]]))
    names = _unique(schema.names)
    for batch in batches:
        columns = [cells(column) for column in batch.columns]
        if format_name == "csv":
            write(_csv_lines([[text_of(cell) for cell in row] for row in zip(*columns, strict=True)]))
        else:
            rows = zip(*([as_json(cell) for cell in column] for column in columns), strict=True)
            write(b"".join(json_line(dict(zip(names, row, strict=True))) for row in rows))


def write_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch], file: BinaryIO) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def to_output(schema: pa.Schema, batches: Iterable[pa.RecordBatch], format_name: str) -> None:
    """Standard output."""
    if format_name == "parquet":
        buffer = _Output()
        write_parquet(schema, batches, buffer)  # type: ignore[arg-type]
    else:
        write_rows(schema, batches, format_name, write, in_lines=sys.stdout.isatty())
    flush()


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when it is whole and on the device; until then there is what was there before."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            syncs.sync_file(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            syncs.sync_directory(folder)
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


class _Output(io.RawIOBase):
    """Standard output as a file."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        write(bytes(data))
        return len(data)


def _csv_lines(rows: Iterable[Iterable[Any]]) -> bytes:
    """A text that is empty is `""`, null is nothing."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow(row)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _unique(names: Iterable[str]) -> list[str]:
    """Columns of one name are told apart."""
    found: dict[str, None] = {}
    numbers: dict[str, int] = {}
    for name in names:
        number, unique = numbers.get(name, 1), name
        while unique in found:
            number += 1
            unique = f"{name}_{number}"
        numbers[name] = number
        found[unique] = None
    return list(found)


def cells(column: pa.Array) -> list[Any]:
    """The values of a column as Python has them; times that no calendar has are numbers."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def as_json(value: Any) -> Any:
    """Return the JSON form of a cell: bytes as their text or `{"base64": ...}`, times in ISO 8601."""
    if isinstance(value, bytes):
        return as_json_value(value)
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return _iso(value, "T")
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def as_text(value: Any) -> str:
    """Return the text that a table shows for a cell."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return shown(value)
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime.datetime):
        return _iso(value, " ")
    if isinstance(value, (dict, list)):
        return printable(json.dumps(as_json(value), ensure_ascii=False))
    return printable(str(value))


def as_csv(value: Any) -> Any:
    """Return the CSV form of a cell; None is an empty field."""
    if isinstance(value, (dict, list)):
        return json.dumps(as_json(value), ensure_ascii=False)
    value = as_json(value)
    if isinstance(value, dict):
        return f"base64:{value['base64']}"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value


def _iso(value: datetime.datetime | datetime.date | datetime.time, between: str) -> str:
    """With as many digits of the second as there are, by threes."""
    text = value.isoformat().replace("T", between).replace("+00:00", "Z")
    micros = getattr(value, "microsecond", 0)
    return text.replace(f".{micros:06}", f".{micros // 1000:03}", 1) if micros and micros % 1000 == 0 else text
