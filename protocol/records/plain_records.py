"""Records as a program gives them: with the key that they share, and the partition that it says."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final

import attrs

from ..errors import InvalidRecordError
from ..limits import INT64_MAX
from ..types import NO_TIMESTAMP, Bytes
from .partitioners import partition_for_key

Headers = Sequence[tuple[str, bytes | None]]
PlainRecord = tuple[int | None, bytes | None, bytes | None, Headers]
"""(timestamp in ms or None for now, key, value, headers)."""

BYTES: Final = (bytes, bytearray, memoryview)
SHAPE: Final = "bytes (of a str: encode() it), None or (timestamp_ms or None, key, value, headers)"


def keyed(records: Sequence[PlainRecord | bytes], key: bytes | None) -> list[PlainRecord]:
    """Plain records: of values that are no tuples `key` is the key."""
    return [record if isinstance(record, tuple) else (None, key, record, ()) for record in records]


def by_partition(records: Sequence[PlainRecord | bytes], partitions: int, without_key: int) -> dict[int, list[PlainRecord]]:
    """The records of each partition, in their order: by their own keys, those without one in `without_key`."""
    found: dict[int, list[PlainRecord]] = {}
    for record in keyed(records, None):
        key = record[1]
        found.setdefault(without_key if key is None else partition_for_key(key, partitions), []).append(record)
    return found


@attrs.define(eq=False, repr=False)
class WrongRecordsNamed:
    """A block in which records are packed: where one of them is none, the error says which, and what was expected. Until then
    nobody looks at them twice."""

    topic: str
    records: Bytes | Sequence[PlainRecord | bytes]

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None and issubclass(kind, TypeError | ValueError | LookupError):
            check_records(self.topic, self.records)


def check_records(topic: str, records: object) -> None:
    """Raises TypeError, InvalidRecordError for a timestamp that is none: of the first record that is wrong."""
    if isinstance(records, BYTES):
        return
    if isinstance(records, str) or not isinstance(records, Sequence):
        raise TypeError(f"{topic}: records are {_told(records)}, expected a sequence of records, or whole batches as bytes")
    for index, record in enumerate(records):
        if (wrong := _wrong_in(record)) is not None:
            raise TypeError(f"{topic}, record {index}: {wrong}")
        timestamp = record[0] if isinstance(record, tuple) else None
        if timestamp is not None and not NO_TIMESTAMP <= timestamp <= INT64_MAX:
            raise InvalidRecordError(f"{topic}, record {index}: timestamp {timestamp} is neither -1 nor ms since 1970")


def _wrong_in(record: object) -> str | None:
    if not isinstance(record, tuple):
        return None if record is None or isinstance(record, BYTES) else f"it is {_told(record)}, expected {SHAPE}"
    if len(record) != 4:
        return f"it is a tuple of {len(record)}, expected (timestamp_ms or None, key, value, headers)"
    timestamp, key, value, headers = record
    if timestamp is not None and not isinstance(timestamp, int):
        return f"its timestamp is {_told(timestamp)}, expected int (ms since 1970) or None"
    for name, part in (("key", key), ("value", value)):
        if part is not None and not isinstance(part, BYTES):
            return f"its {name} is {_told(part)}, expected bytes (of a str: encode() it) or None"
    if isinstance(headers, str | bytes) or not isinstance(headers, Sequence):
        return f"its headers are {_told(headers)}, expected a sequence of (name, bytes or None)"
    for header in headers:
        if not isinstance(header, tuple | list) or len(header) != 2:
            return f"a header is {_told(header)}, expected (name, bytes or None)"
        if not isinstance(header[0], str) or not (header[1] is None or isinstance(header[1], BYTES)):
            return f"a header is ({_told(header[0])}, {_told(header[1])}), expected (str, bytes or None)"
    return None


def _told(value: object) -> str:
    """Its type; a text's beginning, too, which says where it comes from."""
    if isinstance(value, str):
        return f"str {value[:20]!r}{'...' if len(value) > 20 else ''}"
    return type(value).__name__
