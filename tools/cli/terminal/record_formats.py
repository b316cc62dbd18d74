"""Records on standard output, one by one: JSON lines, raw values, or columns of fixed width."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

from ....protocol.types import NO_TIMESTAMP, Record, TopicPartition
from .output import as_json_value, json_line, printable, shown
from .times import Zone, format_time

KEY_WIDTH: Final = 10
_COLUMNS: Final = "{:>4}  {:>10}  {:<29}  {:<10}  {}"
"""Narrow enough that 80 columns leave something for the value."""


class Formatter(Protocol):
    """A format in which records are written."""

    def head(self) -> bytes:
        """Return the bytes that precede the first record."""
        ...

    def record(self, partition: TopicPartition, record: Record) -> bytes:
        """Return one record with its line end."""
        ...


Decode = Callable[[bytes | None], Any]
"""Returns a key or a value as JSON."""


def formatter(name: str, zone: Zone, decode: Decode | None = None) -> Formatter:
    """The formatter for `json`, `raw` or `table`. `decode`: decodes keys and values."""
    if name == "json":
        return JsonLines(decode or as_json_value)
    plain = RawValues() if name == "raw" else Columns(zone, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    return plain if decode is None else Decoded(plain, decode)


def record_as_json(partition: TopicPartition, record: Record, decode: Decode = as_json_value) -> dict[str, Any]:
    """A record as `produce --format json` reads it again; the timestamp is null when there is none."""
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp == NO_TIMESTAMP else record.timestamp,
        "key": decode(record.key),
        "value": decode(record.value),
        "headers": [[name, as_json_value(value)] for name, value in record.headers],
    }


class JsonLines:
    """A format with one JSON object a line."""

    def __init__(self, decode: Decode = as_json_value) -> None:
        self._decode = decode

    def head(self) -> bytes:
        return b""

    def record(self, partition: TopicPartition, record: Record) -> bytes:
        return json_line(record_as_json(partition, record, self._decode))


class Decoded:
    """A format of bytes, with keys and values decoded to JSON before."""

    def __init__(self, inner: Formatter, decode: Decode) -> None:
        self._inner = inner
        self._decode = decode

    def head(self) -> bytes:
        return self._inner.head()

    def record(self, partition: TopicPartition, record: Record) -> bytes:
        return self._inner.record(partition, record._replace(key=self._text(record.key), value=self._text(record.value)))

    def _text(self, data: bytes | None) -> bytes | None:
        """Return bytes that were not decoded as they are."""
        value = self._decode(data)
        return data if value == as_json_value(data) else json_line(value).rstrip()


class RawValues:
    """The bytes of the value and a line end; nothing is escaped, and null is empty."""

    def head(self) -> bytes:
        return b""

    def record(self, partition: TopicPartition, record: Record) -> bytes:
        return (record.value or b"") + b"\n"


class Columns:
    """Lines with partition, offset, time, key, value; cut at the width of the terminal, or whole where there is none."""

    def __init__(self, zone: Zone, width: int | None) -> None:
        self._zone = zone
        self._width = width

    def head(self) -> bytes:
        return self._line("part", "offset", "time", "key", "value")

    def record(self, partition: TopicPartition, record: Record) -> bytes:
        value = shown(record.value)
        if record.headers:
            value += "  {" + ", ".join(f"{printable(name)}: {shown(content)}" for name, content in record.headers) + "}"
        when = format_time(record.timestamp, self._zone)
        return self._line(partition.partition, record.offset, when, shown(record.key), value)

    def _line(self, partition: object, offset: object, when: str, key: str, value: str) -> bytes:
        if self._width is not None:
            key = _cut(key, KEY_WIDTH)
        line = _COLUMNS.format(partition, offset, when, key, value)
        return (line if self._width is None else _cut(line, self._width)).rstrip().encode() + b"\n"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
