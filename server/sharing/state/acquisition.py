"""The records that a fetch of a share group gives to a member (Kafka: SharePartition.acquire; KIP-932, KIP-1206).

Records that come again are given as they were acquired: a whole batch, also where that is more than the member wants. New ones
are given in whole record batches, in pieces of about the member's batch size. In record-limit mode a member gets one range,
and not more than it wants. Records that failed often come in ever smaller pieces, the last time alone: a record that breaks
its members does not take others with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from .partition_state import InFlightBatch, Run, SharePartitionState
from .values import AcquiredRecords, AcquireMode, OffsetRange, RecordState, StateBatch

FIRST_LIMIT_ALONE: Final = 3
"""With a lower delivery count limit the last delivery is like any."""
MIN_THROTTLED_COUNT: Final = 2


@attrs.define(eq=False, repr=False)
class Acquisition:
    """A fetch of one member. It lives as long as a call."""

    state: SharePartitionState
    member: str
    mode: AcquireMode
    batch_size: int
    """Of the pieces in which new records are given, about."""
    now_ms: int
    _fetched: Sequence[OffsetRange] = ()
    _limit: int = 0
    _count: int = 0
    _acquired: list[AcquiredRecords] = attrs.field(factory=list)
    archived: list[StateBatch] = attrs.field(factory=list)
    """Of aborted transactions: to be stored, so that a later owner of the state does not give them once more."""

    def take(
        self,
        fetched: Sequence[OffsetRange],
        *,
        fetch_offset: int,
        max_records: int,
        aborted: Sequence[OffsetRange] = (),
    ) -> list[AcquiredRecords]:
        """Acquire up to about `max_records` of the records that were read from `fetch_offset` on. `fetched`: the record
        batches; `aborted`: those of aborted transactions, where the group reads committed records."""
        state = self.state
        if not fetched or max_records <= 0 or fetched[-1].last < state.start_offset:
            return []
        self._fetched = fetched
        self._limit, last = self._limits(fetch_offset, max_records, fetched[-1].last)
        if self._limit <= 0:
            return []
        base = fetched[0].first
        if fetch_offset < base:
            state.archive_available(fetch_offset, base - 1)
        self._take_all(base, last)
        if aborted:
            self._archive(aborted)
        return self._acquired

    def _limits(self, fetch_offset: int, max_records: int, last: int) -> tuple[int, int]:
        """Return how many records, and up to which offset: at the limit of locks only those that were given before."""
        state = self.state
        limit = min(max_records, state.config.partition_max_record_locks - state.in_flight_count)
        if limit > 0 or fetch_offset >= state.next_offset:
            return limit, last
        return min(max_records, state.next_offset - fetch_offset), min(last, state.next_offset - 1)

    def _take_all(self, base: int, last: int) -> None:
        state = self.state
        index = state.index_of(base)
        first = base if index < 0 or state.batches[index].last < base else state.batches[index].first
        known = state.beginning_in(first, last)
        for batch in known:
            if self._count >= self._limit:
                return
            if batch.is_gap:
                self._take_gap(batch, base, last)
            elif self._take_known(batch, base, last):
                return
        after = max(known[-1].last + 1 if known else base, state.start_offset)
        if self._count < self._limit and after <= last:
            self._take_new(after if state.batches else max(after, state.next_offset), last)

    # ---- what comes again ------------------------------------------------------------------------------------------------

    def _take_known(self, batch: InFlightBatch, base: int, last: int) -> bool:
        """Acquire the available records of a batch. Returns whether the fetch ends with them."""
        is_throttled = self._is_throttled(batch, base, last)
        if is_throttled and self._count:
            return True
        left = self._limit - self._count
        is_whole = base <= batch.first and batch.last <= last
        is_too_much = self.mode is AcquireMode.RECORD_LIMIT and batch.last - batch.first + 1 > left
        if is_whole and not batch.is_split and not is_too_much and not is_throttled:
            if batch.runs[0].is_available:
                self._give([batch.runs[0]])
            return False
        if not batch.is_split and not batch.runs[0].is_available:
            return False
        before = self._count
        self._take_part(batch, base, last, left)
        return is_throttled and self._count > before

    def _is_throttled(self, batch: InFlightBatch, base: int, last: int) -> bool:
        runs = batch.overlapping(base, last) if batch.is_split else batch.runs
        return any(run.is_available and run.delivery_count >= self._throttled_count for run in runs)

    @property
    def _throttled_count(self) -> int:
        """The number of deliveries after which records come in smaller pieces."""
        return max(MIN_THROTTLED_COUNT, -(-self.state.config.delivery_count_limit // 2))

    def _take_part(self, batch: InFlightBatch, base: int, last: int, left: int) -> None:
        """Acquire the available offsets of a batch, one after another."""
        limit, taken, cap = self.state.config.delivery_count_limit, 0, 0
        given: list[Run] = []
        batch.is_split = True
        for run in [run for run in batch.overlapping(base, last) if run.is_available]:
            first, count = max(run.first, base), min(run.last, last) - max(run.first, base) + 1
            is_last_time = limit >= FIRST_LIMIT_ALONE and run.delivery_count == limit - 1
            if is_last_time and taken:
                break
            if not cap and run.delivery_count >= self._throttled_count:
                cap = max(1, batch.size >> (run.delivery_count - self._throttled_count + 1))
            if is_last_time:
                count = 1
            if self.mode is AcquireMode.RECORD_LIMIT:
                count = min(count, left - taken)
            if cap > taken:
                count = min(count, cap - taken)
            given += batch.between(first, first + count - 1)
            taken += count
            if is_last_time or taken == cap or (self.mode is AcquireMode.RECORD_LIMIT and taken == left):
                break
        self._give(given)
        batch.merge()

    def _give(self, runs: Sequence[Run]) -> None:
        deadline_ms = self.state.lock_until(self.now_ms)
        ranges: list[AcquiredRecords] = []
        for run in runs:
            run.acquire(self.member, deadline_ms)
            self._count += run.count
            if ranges and ranges[-1].last_offset == run.first - 1 and ranges[-1].delivery_count == run.delivery_count:
                ranges[-1] = ranges[-1]._replace(last_offset=run.last)
            else:
                ranges.append(AcquiredRecords(run.first, run.last, run.delivery_count))
        self._acquired += ranges

    # ---- what comes for the first time -----------------------------------------------------------------------------------

    def _take_gap(self, gap: InFlightBatch, base: int, last: int) -> None:
        """Acquire from offsets that no member is known to have had, as if they were new."""
        state = self.state
        first, end = max(gap.first, base), min(gap.last, last)
        index = state.index_of(gap.first)
        del state.batches[index]
        if gap.first < first:
            state.batches.insert(index, _gap(gap.first, first - 1))
        end = self._take_new(first, end)
        if end < gap.last:
            state.batches.insert(state.index_of(end) + 1, _gap(end + 1, gap.last))
            state.may_have_available = True

    def _take_new(self, first: int, last: int) -> int:
        """Acquire offsets that no batch has. Returns the last one that has one now."""
        left = self._limit - self._count
        if left < last - first + 1:
            last = min(self._end_of_batch(first + left - 1), last)
        state, place = self.state, self.state.index_of(first) + 1
        if self.mode is AcquireMode.RECORD_LIMIT:
            batches = [InFlightBatch.of(Run(first, last, RecordState.AVAILABLE, 0))]
            given = batches[0].between(first, first + min(left, last - first + 1) - 1)
        else:
            batches = [
                InFlightBatch.of(Run(start, stop, RecordState.AVAILABLE, 0)) for start, stop in self._pieces(first, last)
            ]
            given = [batch.runs[0] for batch in batches]
        state.batches[place:place] = batches
        state.next_offset = max(state.next_offset, last + 1)
        if place == 0:
            state.start_offset = first
        for run in given:
            self._give([run])
        state.may_have_available = state.may_have_available or len(batches[0].runs) > 1
        return last

    def _end_of_batch(self, offset: int) -> int:
        """Return the end of the record batch with an offset; the offset itself between two of them."""
        end = offset
        for batch in self._fetched:
            if batch.first > offset:
                break
            end = max(offset, batch.last)
        return end

    def _pieces(self, first: int, last: int) -> list[OffsetRange]:
        """Return the offsets in pieces that end with record batches."""
        pieces, start = [], first
        if last - first + 1 > self.batch_size:
            for batch in self._fetched:
                if start < batch.first <= last and batch.first - start >= self.batch_size:
                    pieces.append(OffsetRange(start, batch.first - 1))
                    start = batch.first
        return [*pieces, OffsetRange(start, last)]

    # ---- what came to nothing --------------------------------------------------------------------------------------------

    def _archive(self, aborted: Sequence[OffsetRange]) -> None:
        """Archive records of aborted transactions: no member gets them."""
        for first, last in aborted:
            for batch in self.state.overlapping(first, last):
                for run in [run for run in batch.overlapping(first, last) if run.is_owned_by(self.member)]:
                    for each in batch.between(max(first, run.first), min(last, run.last)):
                        each.settle(RecordState.ARCHIVED)
                        self.archived.append(StateBatch(each.first, each.last, each.state, each.delivery_count))
                batch.merge()
            self._acquired = [left for each in self._acquired for left in _without(each, first, last)]
        self.state.advance_start()


def _gap(first: int, last: int) -> InFlightBatch:
    return InFlightBatch.of(Run(first, last, RecordState.AVAILABLE, 0), is_gap=True)


def _without(acquired: AcquiredRecords, first: int, last: int) -> list[AcquiredRecords]:
    """Return the rest of a range without these offsets."""
    if acquired.last_offset < first or acquired.first_offset > last:
        return [acquired]
    left = []
    if acquired.first_offset < first:
        left.append(acquired._replace(last_offset=first - 1))
    if acquired.last_offset > last:
        left.append(acquired._replace(first_offset=last + 1))
    return left
