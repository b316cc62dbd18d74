"""A share-partition against a model that knows one record after the other: members fetch, say what they like of what they have
and have not, lose their locks and come back; writes are late or fail; the log is trimmed; the server restarts."""

from __future__ import annotations

from typing import Final

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.sharing.state.acquisition import Acquisition
from triolog.server.sharing.state.partition_state import Change, SharePartitionState
from triolog.server.sharing.state.stored_state import StoredShare, applied, plan_initial, plan_write
from triolog.server.sharing.state.values import Acknowledgement, AcquireMode, OffsetRange, RecordState, ShareConfig, StateBatch

MEMBERS: Final = ("one", "two", "three")
CONFIG: Final = ShareConfig(record_lock_duration_ms=100, delivery_count_limit=3, partition_max_record_locks=30)
KINDS: Final = {0: RecordState.ARCHIVED, 1: RecordState.ACKNOWLEDGED, 2: RecordState.AVAILABLE, 3: RecordState.ARCHIVED}
RENEW: Final = 4


@attrs.define
class Record:
    """One offset."""

    state: RecordState = RecordState.AVAILABLE
    count: int = 0
    member: str | None = None
    deadline_ms: int | None = None
    target: RecordState | None = None

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.target is None

    @property
    def is_done(self) -> bool:
        return self.state.is_terminal and self.target is None

    def given_back(self) -> RecordState:
        return RecordState.ARCHIVED if self.count >= CONFIG.delivery_count_limit else RecordState.AVAILABLE

    def settle(self, state: RecordState) -> None:
        self.state, self.member, self.deadline_ms, self.target = state, None, None, None


@attrs.define(eq=False)
class Open:
    """A change on its way into the log."""

    change: Change
    records: list[Record]


class SharePartitionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = SharePartitionState(0, CONFIG)
        self.now_ms = 0
        self.log: list[OffsetRange] = []
        self.aborted: list[OffsetRange] = []
        self.log_end = self.start = self.next = 0
        self.records: dict[int, Record] = {}
        self.open: list[Open] = []
        self.stored: StoredShare = applied(None, plan_initial(None, state_epoch=0, start_offset=0, now_ms=0))
        self.kept: dict[int, tuple[RecordState, int]] = {}

    @rule(size=st.integers(1, 5), hole=st.sampled_from([0, 0, 0, 3]), is_aborted=st.sampled_from([False] * 4 + [True]))
    def append(self, size: int, hole: int, is_aborted: bool) -> None:
        first = self.log_end + hole
        self.log_end = first + size
        self.log.append(OffsetRange(first, first + size - 1))
        if is_aborted:
            self.aborted.append(self.log[-1])

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, self.log_end))
        self.log = [each for each in self.log if each.last >= start]
        self.state.move_start(start)
        self.start, self.next = max(self.start, start), max(self.next, start)
        self.forget()

    @rule(
        data=st.data(),
        member=st.sampled_from(MEMBERS),
        mode=st.sampled_from(AcquireMode),
        batch_size=st.integers(1, 8),
        max_records=st.integers(0, 12),
        batches=st.integers(1, 4),
    )
    def fetch(
        self, data: st.DataObject, member: str, mode: AcquireMode, batch_size: int, max_records: int, batches: int
    ) -> None:
        offset = self.state.next_fetch_offset()
        assert offset == min((each for each, record in self.records.items() if record.is_available), default=self.next)
        if data.draw(st.sampled_from([False] * 5 + [True])):
            offset = data.draw(st.integers(self.start, self.next))
        fetched = [each for each in self.log if each.last >= offset][:batches]
        in_flight = self.next - self.start
        aborted = [each for each in self.aborted if each in fetched]
        acquired = Acquisition(self.state, member, mode, batch_size, self.now_ms).take(
            fetched, fetch_offset=offset, max_records=max_records, aborted=aborted
        )
        got = {each: count for first, last, count in acquired for each in range(first, last + 1)}
        assert len(got) == sum(last - first + 1 for first, last, _ in acquired)
        assert list(got) == sorted(got)
        if not fetched or not max_records:
            assert not got
            return
        if mode is AcquireMode.RECORD_LIMIT:
            assert len(got) <= max_records
        self.check_acquired(got, fetched, aborted, in_flight)
        self.take_over(member, got, offset, fetched[0].first, aborted)

    def check_acquired(
        self, got: dict[int, int], fetched: list[OffsetRange], aborted: list[OffsetRange], in_flight: int
    ) -> None:
        for offset, count in got.items():
            before = self.records.get(offset, Record())
            assert fetched[0].first <= offset <= fetched[-1].last
            assert before.is_available
            assert count == before.count + 1
            assert not any(first <= offset <= last for first, last in aborted)
        if not got and not aborted:
            again = range(fetched[0].first, fetched[-1].last + 1)
            assert not any(offset in self.records and self.records[offset].is_available for offset in again)
            assert fetched[-1].last < self.next or in_flight >= CONFIG.partition_max_record_locks

    def take_over(self, member: str, got: dict[int, int], offset: int, base: int, aborted: list[OffsetRange]) -> None:
        """What the model cannot know it takes over: how far it goes."""
        for each in range(offset, base):
            if each in self.records and self.records[each].is_available:
                self.records[each].settle(RecordState.ARCHIVED)
        if self.state.next_offset > self.next:
            for each in range(max(self.next, base), self.state.next_offset):
                self.records[each] = Record()
            if min(self.records) >= max(self.next, base):
                self.start = min(self.records)
            self.next = self.state.next_offset
        for each, count in got.items():
            self.records[each] = Record(RecordState.ACQUIRED, count, member, self.now_ms + CONFIG.record_lock_duration_ms)
        for first, last in aborted:
            for each in range(max(first, self.start), last + 1):
                run = next((run for run in self.state.runs() if run.first <= each <= run.last), None)
                if each in self.records and each not in got and (run is None or run.state is RecordState.ARCHIVED):
                    record = self.records[each]
                    assert record.is_done or record.is_available
                    if record.is_available:
                        self.records[each] = Record(RecordState.ARCHIVED, record.count + 1)
        self.forget()

    @rule(data=st.data(), member=st.sampled_from(MEMBERS))
    def acknowledge(self, data: st.DataObject, member: str) -> None:
        theirs = sorted(offset for offset, record in self.records.items() if record.member == member)
        said = []
        for _ in range(data.draw(st.integers(1, 3))):
            near = (
                data.draw(st.sampled_from(theirs))
                if theirs and data.draw(st.booleans())
                else data.draw(st.integers(0, self.next + 2))
            )
            last = near + data.draw(st.integers(0, 5))
            count = data.draw(st.sampled_from([1, last - near + 1]))
            kinds = data.draw(st.lists(st.sampled_from([0, 1, 1, 2, 2, 3, 4]), min_size=count, max_size=count))
            said.append(Acknowledgement(near, last, kinds))
        records: list[Record] = []
        error = self.expected(member, said, records)
        if error is not None:
            for record in records:
                record.target = None
            with pytest.raises(RequestError) as caught:
                self.state.acknowledge(member, said, self.now_ms)
            assert caught.value.code is error
            return
        self.open.append(Open(self.state.acknowledge(member, said, self.now_ms), records))

    def expected(self, member: str, said: list[Acknowledgement], records: list[Record]) -> ErrorCode | None:
        for first, last, kinds in said:
            if last < self.start:
                continue
            if not self.records:
                return ErrorCode.INVALID_RECORD_STATE
            if last not in self.records:
                return ErrorCode.INVALID_REQUEST
            about = [offset for offset in range(first, last + 1) if offset in self.records]
            if any(self.records[each].member != member or self.records[each].target is not None for each in about):
                return ErrorCode.INVALID_RECORD_STATE
            for offset in about:
                record, kind = self.records[offset], kinds[0 if len(kinds) == 1 else offset - first]
                if kind == RENEW:
                    record.deadline_ms = self.now_ms + CONFIG.record_lock_duration_ms
                    continue
                record.target = record.given_back() if kind == 2 else KINDS[kind]
                records.append(record)
        return None

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        records = [each for each in self.records.values() if each.member == member and each.target is None]
        for record in records:
            record.target = record.given_back()
        self.open.append(Open(self.state.release(member), records))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_stored=st.sampled_from([True, True, True, False]))
    def finish_a_write(self, data: st.DataObject, is_stored: bool) -> None:
        done = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        if not is_stored:
            self.state.roll_back(done.change)
            for record in done.records:
                record.target = None
            return
        self.store(done.change.batches)
        self.state.commit(done.change)
        for record in done.records:
            assert record.target is not None
            record.settle(record.target)
        self.forget()

    @rule(ms=st.sampled_from([1, 30, 60, 101]))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        expired = self.state.expire(self.now_ms)
        for record in self.records.values():
            if record.target is None and record.deadline_ms is not None and record.deadline_ms <= self.now_ms:
                record.settle(record.given_back())
        self.store(expired)
        self.forget()

    def store(self, batches: list[StateBatch]) -> None:
        value = plan_write(
            self.stored,
            start_offset=self.state.start_offset,
            delivery_complete_count=self.state.delivery_complete_count,
            batches=batches,
            leader_epoch=0,
            now_ms=self.now_ms,
        )
        self.stored = applied(self.stored, value)
        for first, last, state, count in batches:
            self.kept.update(dict.fromkeys(range(first, last + 1), (state, count)))
        self.kept = {each: kept for each, kept in self.kept.items() if each >= self.stored.start_offset}

    @rule()
    def restart(self) -> None:
        stored = {
            each: (batch.state, batch.delivery_count)
            for batch in self.stored.batches
            for each in range(batch.first_offset, batch.last_offset + 1)
        }
        assert stored == self.kept
        self.state = SharePartitionState.restored(self.stored.start_offset, self.stored.batches, CONFIG)
        self.open.clear()
        self.start = self.stored.start_offset
        self.next = max(stored, default=self.start - 1) + 1
        self.records = {each: Record(*stored.get(each, (RecordState.AVAILABLE, 0))) for each in range(self.start, self.next)}
        self.forget()

    def forget(self) -> None:
        """What is done at the beginning is over."""
        self.records = {each: record for each, record in sorted(self.records.items()) if each >= self.start}
        left = [each for each, record in self.records.items() if not record.is_done]
        if self.records:
            self.start = left[0] if left else self.next
            self.records = {each: record for each, record in self.records.items() if each >= self.start}

    @invariant()
    def both_know_the_same(self) -> None:
        found: dict[int, Record] = {}
        for run in self.state.runs():
            for offset in range(run.first, run.last + 1):
                assert offset not in found
                found[offset] = Record(run.state, run.delivery_count, run.member, run.deadline_ms, run.target)
        assert found == self.records
        assert list(found) == sorted(found)
        assert (self.state.start_offset, self.state.next_offset) == (self.start, self.next)
        assert self.state.acquired_count == sum(each.state is RecordState.ACQUIRED for each in found.values())
        assert self.state.delivery_complete_count == sum((each.target or each.state).is_terminal for each in found.values())
        deadlines = [each.deadline_ms for each in found.values() if each.deadline_ms is not None and each.target is None]
        assert not deadlines or (self.state.next_deadline_ms or self.now_ms) <= min(deadlines)


TestSharePartition = SharePartitionMachine.TestCase
