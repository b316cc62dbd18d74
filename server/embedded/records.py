"""Records as a program gives them, with the key that they share and the partition that it names, and as it gets them: unpacked,
without the markers of transactions.

A page may have nothing but markers, aborted records, or the headers that compaction has left: reading goes on until there is a
record, or the end of what may be read. So an empty list always means that there is no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final

import attrs
import trio

from ...protocol.errors import InvalidRecordError
from ...protocol.limits import INT64_MAX
from ...protocol.records.batch import BatchHeader, iter_batches
from ...protocol.records.partitioners import partition_for_key
from ...protocol.records.record import CommittedFilter, iter_records
from ...protocol.types import NO_OFFSET, NO_TIMESTAMP, Bytes, Isolation, Record, TimeRange, TopicPartition
from ..broker import Broker, FetchedRecords, FetchPartition, PlainRecord, ReaderView

BYTES: Final = (bytes, bytearray, memoryview)
SHAPE: Final = "bytes (of a str: encode() it), None or (timestamp_ms or None, key, value, headers)"


def keyed(records: Sequence[PlainRecord | bytes], key: bytes | None) -> list[PlainRecord]:
    """Plain records: of values that are no tuples `key` is the key."""
    return [record if isinstance(record, tuple) else (None, key, record, ()) for record in records]


def partition_of(core: Broker, topic: str, key: bytes | None, partition: int | None) -> int:
    """The partition that is named; otherwise that of the key, without one the first. Raises RequestError."""
    if partition is not None:
        return partition
    return 0 if key is None else partition_for_key(key, core.topics.partition_count(topic))


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
        raise TypeError(f"{topic}: records are {_told(records)}, expected a sequence of them, or whole batches as bytes")
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


async def from_offset(
    core: Broker, where: TopicPartition, offset: int, max_bytes: int, max_wait_s: float, *, committed_only: bool
) -> list[Record]:
    """Those from `offset` on, about `max_bytes` of them; waits for the first. Raises RequestError."""
    deadline, at = trio.current_time() + max_wait_s, offset
    while True:
        left_s = max(0.0, deadline - trio.current_time()) if max_wait_s > 0 else 0.0
        fetched = await _fetched(core, FetchPartition(where, at, max_bytes), committed_only, left_s)
        next_offset, found = at, []
        for header, batch in _batches(fetched, committed_only):
            next_offset = header.next_offset
            if batch is not None:
                found += [record for record in iter_records(batch, header) if record.offset >= offset]
        if found or next_offset == at:
            return found
        at = next_offset


async def range_of_times(
    core: Broker, where: TopicPartition, offset: int, times: TimeRange, max_bytes: int, *, committed_only: bool
) -> list[Record]:
    """Those of `times` from `offset` on (NO_OFFSET: the log start), one page of them; none where there are no more. Raises
    RequestError."""
    first = offset
    while True:
        fetched = await _fetched(core, FetchPartition(where, offset, max_bytes, times), committed_only)
        first = fetched.log_start_offset if first == NO_OFFSET else first
        found = [
            record
            for header, batch in _batches(fetched, committed_only)
            if batch is not None
            for record in iter_records(batch, header)
            if record.offset >= first and times.holds(record.timestamp)
        ]
        if found or fetched.ends_range:
            return found
        offset = fetched.next_offset


async def _fetched(core: Broker, question: FetchPartition, committed_only: bool, max_wait_s: float = 0.0) -> FetchedRecords:
    view = ReaderView(Isolation.READ_COMMITTED if committed_only else Isolation.READ_UNCOMMITTED)
    [answer] = await core.reader.fetch([question], max_bytes=question.max_bytes, max_wait_s=max_wait_s, view=view)
    if answer.fetched is None:
        assert answer.error is not None
        raise answer.error
    return answer.fetched


def _batches(fetched: FetchedRecords, committed_only: bool) -> Iterator[tuple[BatchHeader, memoryview | None]]:
    """All batches; None in place of those that nobody is to see."""
    skipped = CommittedFilter((each.producer_id, each.first_offset) for each in fetched.aborted or ())
    for header, batch in iter_batches(fetched.records):
        is_hidden = skipped.leaves_out(header, batch) if committed_only else header.is_control
        yield header, None if is_hidden else batch
