"""Bodies of requests that append over HTTP. The first byte chooses the format, and for lines the size of the pieces.

A body is records or ends in InvalidBodyError or LineTooLongError, nothing else. Python's reader of JSON finds the same records
in it. Lines are the same in whatever pieces they come.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Final

from triolog.server.listeners.http.bodies import (
    MEMBERS,
    BodyRecord,
    InvalidBodyError,
    LineCutter,
    LineTooLongError,
    check_line,
    read_records,
)

from tests.fuzzing.target import BrokenInvariantError, Target, require

JSON_KIND, BINARY_KIND = 0, 1
MOST_LINE_BYTES: Final = 200


def feed(data: bytes) -> bool:
    if not data:
        return False
    kind, body = data[0], data[1:]
    try:
        return _feed_lines(body, kind) if kind > BINARY_KIND else _feed_records(body, is_binary=kind == BINARY_KIND)
    except (InvalidBodyError, LineTooLongError):
        return False
    except BrokenInvariantError:
        raise
    except Exception as exc:
        raise BrokenInvariantError(f"{type(exc).__name__} instead of InvalidBodyError for {data.hex()}") from exc


def _feed_records(body: bytes, *, is_binary: bool) -> bool:
    records = list(read_records(body, is_binary=is_binary))
    document = json.loads(body, parse_int=str, parse_float=str)
    require(len(document["records"]) == len(records), f"another number of records: {body.hex()}")
    for record, expected in zip(records, document["records"], strict=True):
        require(set(expected) <= MEMBERS, f"an unknown member was read: {body.hex()}")
        _compare(record, expected, is_binary=is_binary)
    return True


def _compare(record: BodyRecord, expected: dict[str, Any], *, is_binary: bool) -> None:
    partition = expected.get("partition")
    require(record.partition == (None if partition is None else int(partition)), f"another partition: {expected}")
    for found, value in ((record.key, expected.get("key")), (record.value, expected.get("value"))):
        if found is None or value is None:
            require(found is None and value is None, f"null is something: {expected}")
        elif is_binary:
            require(base64.b64encode(found).decode() == value or base64.b64decode(value) == found, f"other bytes: {expected}")
        else:
            require(json.loads(found, parse_int=str, parse_float=str) == value, f"another value: {expected}")


def _feed_lines(body: bytes, size: int) -> bool:
    whole, cut = LineCutter(MOST_LINE_BYTES), LineCutter(MOST_LINE_BYTES)
    lines = [*whole.cut(body), *whole.last()]
    in_pieces = [line for start in range(0, len(body), size) for line in cut.cut(body[start : start + size])]
    require([*in_pieces, *cut.last()] == lines, f"other lines in pieces of {size}: {body.hex()}")
    require(whole.number == cut.number, f"another number of lines in pieces of {size}: {body.hex()}")
    for number, line in enumerate(lines, 1):
        require(b"\n" not in line and bool(line.strip()), f"no line: {line.hex()}")
        check_line(line, number)
        json.loads(line, parse_int=str, parse_float=str)
    return True


def seeds() -> Iterator[bytes]:
    values: list[Any] = [None, True, 1, -2.5e300, "text", '\u00e4\U0001f600\\"', [], [1, [2, {"a": None}]], {"a": {"b": "c"}}]
    for value in values:
        for record in ({"value": value}, {"key": value, "value": 0}, {"partition": 3, "value": value}, {"partition": None}):
            yield bytes([JSON_KIND]) + json.dumps({"records": [record, {}]}, ensure_ascii=False).encode()
        yield bytes([7]) + json.dumps(value).encode() + b"\r\n \n" + json.dumps([value]).encode()
    for data in (b"", b"\0", b"ab", bytes(range(200))):
        text = base64.b64encode(data).decode()
        for record in ({"value": text}, {"key": text, "value": None}, {"key": None, "value": text, "partition": 0}):
            yield bytes([BINARY_KIND]) + json.dumps({"x": [record], "records": [record]}, indent=1).encode()
    yield bytes([JSON_KIND]) + b' { "records" : [ ] } '
    yield bytes([2]) + b"1\n\n2\n3"
    yield bytes([255])


TARGET: Final = Target(
    name="http-bodies", feed=feed, seeds=seeds, modules=("triolog.server.listeners.http.bodies",), max_bytes=2048
)
