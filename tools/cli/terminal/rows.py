"""Rows of an input as records to be produced: lines, JSON lines, CSV (RFC 4180). No files and no sockets here.

A reader is fed the input in pieces of any size and answers the rows that are whole by then, each a record or what is wrong
with it and in which line; a piece that came is never waited for to grow.

| format | key | value | timestamp |
|---|---|---|---|
| lines | --key, or the line before --key-separator | the line, or the rest of it | now |
| json, without --key, --timestamp, --value | `key` | `value` | `timestamp` (ms or ISO 8601) |
| json, with one of them | the field --key | the line, or the field --value | the field --timestamp |
| csv | the column --key | the row as a JSON object, or the column --value | the column --timestamp |

The first JSON form is what `consume --format json` prints: bytes are `{"base64": ...}`, headers a list of [name, value] or an
object, `partition` chooses the partition, `topic` and `offset` are not looked at.
"""

from __future__ import annotations

import base64
import binascii
import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import attrs

from ....protocol.limits import MIB
from .times import LOCAL, Zone, parse_timestamp

MAX_ROW_BYTES: Final = 16 * MIB
"""No record batch can be larger by default; a row that grows beyond it is a file without line ends, or an open quote."""

RECORD_FIELDS: Final = frozenset({"key", "value", "timestamp", "headers", "partition", "topic", "offset"})


class Row(NamedTuple):
    """A record to be sent. A None timestamp is now."""

    line: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


class BadRow(NamedTuple):
    """A row that is no record."""

    line: int
    reason: str


class UnusableInputError(Exception):
    """The input as a whole cannot be read: no header, an unknown column, a row without end. `line` is where."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@attrs.frozen(kw_only=True)
class RowOptions:
    """The places of key, value and timestamp in a row, and the format of a timestamp."""

    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    key_separator: str | None = None
    """Of lines: between key and value."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """Of lines."""
    timestamp_unit_ms: int = 1
    zone: Zone = LOCAL
    delimiter: str = ","

    @property
    def names_fields(self) -> bool:
        return (self.key, self.value, self.timestamp) != (None, None, None)

    def read_timestamp(self, value: Any) -> int | None:
        """Milliseconds; None for null and for nothing. Raises ValueError."""
        if value is None or value == "":
            return None
        if not isinstance(value, str | int | float):
            raise ValueError(f"timestamp {_short(value)} is neither a number nor text")
        return parse_timestamp(value, self.zone, unit_ms=self.timestamp_unit_ms)


Rows = Iterator[Row | BadRow]


class LineReader:
    """A reader of one row a line, parsed by `read`. Keeps the line that has not ended."""

    def __init__(self, read: Callable[[int, bytes], Row]) -> None:
        self._read = read
        self._rest = b""
        self._line = 0

    def feed(self, data: bytes) -> Rows:
        """Rows of the lines that end in `data`."""
        lines = data.split(b"\n")
        lines[0] = self._rest + lines[0]
        self._rest = lines.pop()
        yield from self._rows(lines)
        if len(self._rest) > MAX_ROW_BYTES:
            raise UnusableInputError(self._line + 1, f"more than {MAX_ROW_BYTES} bytes without a line end")

    def finish(self) -> Rows:
        """The row of a last line without a line end."""
        rest, self._rest = self._rest, b""
        yield from self._rows([rest] if rest else [])

    def _rows(self, lines: Sequence[bytes]) -> Rows:
        for line in lines:
            self._line += 1
            try:
                yield self._read(self._line, line.removesuffix(b"\r"))
            except ValueError as exc:
                yield BadRow(self._line, str(exc))


class CsvReader:
    """Rows of a CSV file whose first row names the columns. Keeps the row that has not ended: quoted text may have lines."""

    def __init__(self, options: RowOptions) -> None:
        self._options = options
        self._rest: list[bytes] = []  # pieces of the row that has not ended: each is looked at once, however long the row
        self._rest_bytes = 0
        self._is_quoted = False  # at the end of the rest
        self._line = 0
        self._columns: list[str] = []
        self._slots: dict[str, int] = {}
        csv.field_size_limit(MAX_ROW_BYTES)  # of the whole process; 128 KiB otherwise

    def feed(self, data: bytes) -> Rows:
        """Rows that end in `data`. Raises UnusableInputError."""
        end, self._is_quoted = _last_row_end(data, self._is_quoted)
        if end:
            whole = b"".join([*self._rest, data[:end]])
            self._rest, self._rest_bytes = [], 0
        else:
            whole = b""
        self._rest.append(data[end:])
        self._rest_bytes += len(data) - end
        yield from self._rows(whole)
        if self._rest_bytes > MAX_ROW_BYTES:
            raise UnusableInputError(self._line + 1, f"a row has more than {MAX_ROW_BYTES} bytes. Is a quote left open?")

    def finish(self) -> Rows:
        """Yield the rows of the remaining data, which has no line end. Raises UnusableInputError."""
        rest, self._rest = b"".join(self._rest), []
        if self._is_quoted:
            raise UnusableInputError(self._line + 1, "a quote that opens in this row never closes")
        yield from self._rows(rest)
        if not self._columns:
            raise UnusableInputError(1, "no row with column names")

    def _rows(self, data: bytes) -> Rows:
        # Bytes that are no UTF-8 become lone surrogates here, and an error of the row that has them below.
        text = data.decode("utf-8", "surrogateescape")
        reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=self._options.delimiter)
        before = self._line
        for fields in self._fields(reader):
            line, self._line = self._line + 1, before + reader.line_num
            if not fields:
                continue
            if not self._columns:
                self._read_columns(line, fields)
                continue
            try:
                yield self._row(line, fields)
            except UnicodeEncodeError:
                yield BadRow(line, "is not UTF-8")
            except ValueError as exc:
                yield BadRow(line, str(exc))

    def _fields(self, reader: Iterator[list[str]]) -> Iterator[list[str]]:
        try:
            yield from reader
        except csv.Error as exc:
            raise UnusableInputError(self._line + 1, f"is not CSV: {exc}") from exc

    def _read_columns(self, line: int, names: list[str]) -> None:
        names[0] = names[0].removeprefix("\ufeff")
        options = self._options
        for option, name in (("--key", options.key), ("--timestamp", options.timestamp), ("--value", options.value)):
            if name is not None and names.count(name) != 1:
                raise UnusableInputError(line, f"{option} {name!r} names {names.count(name)} of the columns {', '.join(names)}")
        if len(set(names)) != len(names):
            raise UnusableInputError(line, f"two columns have the same name, among {', '.join(names)}")
        self._columns = names
        self._slots = {name: slot for slot, name in enumerate(names)}

    def _row(self, line: int, fields: list[str]) -> Row:
        columns, slots, options = self._columns, self._slots, self._options
        if len(fields) != len(columns):
            raise ValueError(f"has {len(fields)} fields, the first row names {len(columns)} columns")
        key = None if options.key is None else fields[slots[options.key]].encode()
        timestamp = None if options.timestamp is None else options.read_timestamp(fields[slots[options.timestamp]])
        if options.value is not None:
            return Row(line, key, fields[slots[options.value]].encode(), timestamp)
        value = json.dumps(dict(zip(columns, fields, strict=True)), ensure_ascii=False, separators=(",", ":"))
        return Row(line, key, value.encode(), timestamp)


def row_reader(format_name: str, options: RowOptions) -> LineReader | CsvReader:
    """The reader for `lines`, `json` or `csv`."""
    if format_name == "csv":
        return CsvReader(options)
    if format_name == "lines":
        return LineReader(lambda line, data: _read_line(line, data, options))
    if options.names_fields:
        return LineReader(lambda line, data: _read_object(line, data, options))
    return LineReader(lambda line, data: _read_record(line, data, options))


def _last_row_end(data: bytes, is_quoted: bool) -> tuple[int, bool]:
    """Position behind the last line end that is not inside quotes, 0 when there is none, and whether `data` ends inside.
    `is_quoted` is whether it begins inside."""
    quotes = data.count(b'"') + is_quoted
    ends_quoted = quotes % 2 == 1
    end = len(data)
    while (found := data.rfind(b"\n", 0, end)) >= 0:
        quotes -= data.count(b'"', found, end)
        if quotes % 2 == 0:
            return found + 1, ends_quoted
        end = found
    return 0, ends_quoted


def _read_line(line: int, data: bytes, options: RowOptions) -> Row:
    """A line as a value, with one key and the same headers for all, or after its own key."""
    key, value = None if options.key is None else options.key.encode(), data
    if options.key_separator is not None:
        head, separator, rest = data.partition(options.key_separator.encode())
        if not separator:
            raise ValueError(f"has no key: it does not contain {options.key_separator!r}")
        key, value = head, rest
    return Row(line, key, value, None, options.headers)


def _read_json(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as exc:
        raise ValueError(f"is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise ValueError(f"is {_short(value)}, not a JSON object")
    return value


def _read_object(line: int, data: bytes, options: RowOptions) -> Row:
    """A whole object as the value, or one of its fields."""
    fields = _read_json(data)
    for option, name in (("--key", options.key), ("--timestamp", options.timestamp), ("--value", options.value)):
        if name is not None and name not in fields:
            raise ValueError(f"has no field {name!r}, which {option} names")
    key = None if options.key is None else read_content(fields[options.key])
    timestamp = None if options.timestamp is None else options.read_timestamp(fields[options.timestamp])
    return Row(line, key, data if options.value is None else read_content(fields[options.value]), timestamp)


def _read_record(line: int, data: bytes, options: RowOptions) -> Row:
    """An object whose fields are a record's."""
    fields = _read_json(data)
    if unknown := sorted(fields.keys() - RECORD_FIELDS):
        raise ValueError(
            f"has the field {unknown[0]!r}. A record has key, value, timestamp, headers, partition. With --key "
            "FIELD or --timestamp FIELD the whole object is the value"
        )
    partition = fields.get("partition")
    if partition is not None and (type(partition) is not int or partition < 0):
        raise ValueError(f"partition {_short(partition)} is not a number from 0 on")
    headers = _read_headers(fields.get("headers") or [])
    key, value = read_content(fields.get("key")), read_content(fields.get("value"))
    return Row(line, key, value, options.read_timestamp(fields.get("timestamp")), headers, partition)


def _read_headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise ValueError(f"headers {_short(value)} are neither an object nor a list of [name, value]")
    headers = []
    for pair in pairs:
        match pair:
            case [str(name), content] | (str(name), content):
                headers.append((name, read_content(content)))
            case _:
                raise ValueError(f"header {_short(pair)} is not [name, value]")
    return tuple(headers)


def read_content(value: Any) -> bytes | None:
    """Bytes of a key or value in JSON: text, null, `{"base64": ...}`; anything else is kept as JSON. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as exc:
            raise ValueError(f"{_short(value['base64'])} is not base64: {exc}") from exc
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
