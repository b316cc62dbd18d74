"""Bodies of requests that append records, without sockets: the v2 formats of Confluent's REST Proxy, and lines of JSON.

| content type | body |
|---|---|
| `application/vnd.kafka.json.v2+json` | `{"records": [{"key": JSON, "value": JSON, "partition": 0}, ...]}` |
| `application/vnd.kafka.binary.v2+json` | the same, with key and value in base64 |
| `application/x-ndjson` | one record a line; the line is the value, blank lines are skipped |

Each member of a record may be missing. JSON is stored as the client wrote it, so that no number changes. `null` as a key or a
value is none. A body is read record by record, so that others have their turn in between.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import attrs

SPACE: Final = re.compile(r"[ \t\n\r]*")
MEMBERS: Final = frozenset({"key", "value", "partition"})
MOST_PARTITION_DIGITS: Final = 9


class InvalidBodyError(ValueError):
    """A body is not of its content type."""


class LineTooLongError(ValueError):
    """A line does not fit a batch."""


class BodyRecord(NamedTuple):
    """A record of a body; `partition` is None where the body names none."""

    partition: int | None
    key: bytes | None
    value: bytes | None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=len, parse_float=len)
"""Finds where a value ends; numbers are not converted, however long they are."""


def read_records(body: bytes, *, is_binary: bool) -> Iterator[BodyRecord]:
    """Read the records of a body of v2. Raises InvalidBodyError, after the records before the error."""
    try:
        reader = _Reader(str(body, "utf-8"))
    except UnicodeDecodeError as exc:
        raise InvalidBodyError(f"the body is not UTF-8: byte {exc.start}") from None
    has_records = False
    for name in reader.members():
        if name != "records":
            reader.value()
            continue
        if has_records:
            raise InvalidBodyError("the body has `records` twice")
        has_records = True
        for number in reader.elements():
            yield _read_record(reader, number, is_binary=is_binary)
    reader.end()
    if not has_records:
        raise InvalidBodyError('the body has no `records`: use {"records": [{"value": ...}]}')


def _read_record(reader: _Reader, number: int, *, is_binary: bool) -> BodyRecord:
    texts = dict.fromkeys(MEMBERS, "null")
    values = dict[str, Any]()
    for name in reader.members():
        if name not in MEMBERS:
            raise InvalidBodyError(f"record {number} has {name[:40]!r}: use {', '.join(sorted(MEMBERS))}")
        values[name], texts[name] = reader.value()
    partition = texts["partition"]
    if partition != "null" and not (partition.isascii() and partition.isdecimal() and len(partition) <= MOST_PARTITION_DIGITS):
        raise InvalidBodyError(f"record {number}: partition {partition[:40]} is not a number of a partition")
    key, value = (
        _from_base64(number, name, values.get(name)) if is_binary else _from_json(texts[name]) for name in ("key", "value")
    )
    return BodyRecord(None if partition == "null" else int(partition), key, value)


def _from_json(text: str) -> bytes | None:
    return None if text == "null" else text.encode()


def _from_base64(number: int, name: str, value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise InvalidBodyError(f"record {number}: {name} is not base64")


@attrs.define(eq=False, repr=False)
class _Reader:
    """A position in a text of JSON. Raises InvalidBodyError."""

    _text: str
    _position: int = 0

    def members(self) -> Iterator[str]:
        """Read an object: the name of each member, before its value, which the caller reads."""
        self._take("{")
        if self._next() == "}":
            self._position += 1
            return
        while True:
            name, _ = self.value()
            if not isinstance(name, str):
                self._fail("a name")
            self._take(":")
            yield name
            if self._take(",}") == "}":
                return

    def elements(self) -> Iterator[int]:
        """Read an array: the number of each element, before it, which the caller reads."""
        self._take("[")
        number = 0
        if self._next() == "]":
            self._position += 1
            return
        while True:
            yield number
            number += 1
            if self._take(",]") == "]":
                return

    def value(self) -> tuple[Any, str]:
        """Read any value: what it is, with numbers as their lengths, and its text."""
        self._next()
        start = self._position
        try:
            value, self._position = _DECODER.raw_decode(self._text, start)
        except (ValueError, RecursionError) as exc:
            raise InvalidBodyError(f"the body is not JSON: {_why(exc)}") from None
        return value, self._text[start : self._position]

    def end(self) -> None:
        """Expect nothing but space."""
        if self._next():
            self._fail("the end")

    def _next(self) -> str:
        found = SPACE.match(self._text, self._position)
        assert found is not None
        self._position = found.end()
        return self._text[self._position : self._position + 1]

    def _take(self, expected: str) -> str:
        found = self._next()
        if not found or found not in expected:
            self._fail(" or ".join(expected))
        self._position += 1
        return found

    def _fail(self, expected: str) -> None:
        raise InvalidBodyError(f"the body is not JSON: expected {expected} at character {self._position}")


def _why(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


@attrs.define(eq=False, repr=False)
class LineCutter:
    """Cuts a stream into the lines that are records. Owner: the request."""

    most_bytes: int
    """Of a line."""
    number: int = 0
    """Of the line that was cut last, from 1 on, blank ones included."""
    _rest: bytearray = attrs.field(factory=bytearray)

    @property
    def rest_bytes(self) -> int:
        """Return the size of the line that is not whole."""
        return len(self._rest)

    def cut(self, piece: bytes) -> Iterator[bytes]:
        """Return the lines that are whole now. Raises LineTooLongError."""
        if b"\n" in piece:
            *lines, rest = b"".join((self._rest, piece)).split(b"\n")
            self._rest = bytearray(rest)
            yield from self._records(lines)
        else:
            self._rest += piece
        if len(self._rest) > self.most_bytes + 1:  # and a carriage return
            self.number += 1
            raise LineTooLongError(f"line {self.number} has more than {self.most_bytes} bytes")

    def last(self) -> Iterator[bytes]:
        """Return the last line, at the end of the body."""
        rest, self._rest = bytes(self._rest), bytearray()
        if rest:
            yield from self._records([rest])

    def _records(self, lines: list[bytes]) -> Iterator[bytes]:
        for line in lines:
            self.number += 1
            if line.endswith(b"\r"):
                line = line[:-1]
            if not line or line.isspace():
                continue
            if len(line) > self.most_bytes:
                raise LineTooLongError(f"line {self.number} has {len(line)} bytes, at most {self.most_bytes} are allowed")
            yield line


def check_line(line: bytes, number: int) -> None:
    """Raises InvalidBodyError for a line that is not JSON."""
    try:
        text = str(line, "utf-8")
        try:
            is_whole = _DECODER.raw_decode(text)[1] == len(text)  # as most lines are; half the time of `decode`
        except ValueError:
            is_whole = False
        if not is_whole:
            _DECODER.decode(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidBodyError(f"line {number} is not JSON: {_why(exc)}") from None
