"""Records of one partition, as a program gets them: unpacked, without the markers of transactions.

A page may have nothing but markers, aborted records, or the headers that compaction has left: reading goes on until there is a
record, or the end of what may be read. So an empty list always means that there is no more.
"""

from __future__ import annotations

from collections.abc import Iterator

import trio

from ...protocol.records.batch import BatchHeader, iter_batches
from ...protocol.records.record import CommittedFilter, iter_records
from ...protocol.types import NO_OFFSET, Isolation, Record, TimeRange, TopicPartition
from ..broker import Broker, FetchedRecords, FetchPartition, ReaderView


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
