"""Records of one partition, as a program gets them: unpacked, without the markers of transactions."""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.records.batch import iter_batches
from ...protocol.records.record import iter_records
from ...protocol.types import NO_OFFSET, Record, TimeRange, TopicPartition
from ..broker import Broker, FetchedRecords, FetchPartition


async def from_offset(core: Broker, where: TopicPartition, offset: int, max_bytes: int, max_wait_s: float) -> list[Record]:
    """Those from `offset` on, about `max_bytes` of them; waits for the first. Raises RequestError."""
    fetched = await _fetched(core, FetchPartition(where, offset, max_bytes), max_wait_s)
    return [record for record in _records(fetched) if record.offset >= offset]


async def range_of_times(core: Broker, where: TopicPartition, offset: int, times: TimeRange, max_bytes: int) -> list[Record]:
    """Those of `times` from `offset` on (NO_OFFSET: the log start), one page of them; none where there are no more. Raises
    RequestError."""
    first = offset
    while True:
        fetched = await _fetched(core, FetchPartition(where, offset, max_bytes, times))
        first = fetched.log_start_offset if first == NO_OFFSET else first
        found = [record for record in _records(fetched) if record.offset >= first and times.holds(record.timestamp)]
        if found or fetched.ends_range:
            return found
        offset = fetched.next_offset


async def _fetched(core: Broker, question: FetchPartition, max_wait_s: float = 0.0) -> FetchedRecords:
    [answer] = await core.reader.fetch([question], max_bytes=question.max_bytes, max_wait_s=max_wait_s)
    if answer.fetched is None:
        assert answer.error is not None
        raise answer.error
    return answer.fetched


def _records(fetched: FetchedRecords) -> Iterator[Record]:
    for header, batch in iter_batches(fetched.records):
        if not header.is_control:
            yield from iter_records(batch, header)
