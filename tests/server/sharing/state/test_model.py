"""A share-partition against a model that knows one record after the other: members fetch, say what they like of what they have
and have not, lose their locks and come back; writes are late or fail; the log is trimmed; the server restarts. What a member
is given: new records in pieces, old ones as they were, poison alone. What the log says of a share-partition: snapshots,
updates, and how they are laid over each other. Share sessions: epochs, partitions that are added and forgotten, limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from triolog.protocol.coordinator.share_group_records import ShareSnapshotValue, ShareStateBatch, ShareUpdateValue
from triolog.protocol.errors import ErrorCode, InvalidRecordError, RequestError
from triolog.protocol.limits import INT32_MAX
from triolog.server.sharing.state import sessions as module
from triolog.server.sharing.state import stored_state, values
from triolog.server.sharing.state.acquisition import Acquisition
from triolog.server.sharing.state.partition_state import Change, SharePartitionState
from triolog.server.sharing.state.sessions import ShareSessions
from triolog.server.sharing.state.stored_state import StoredShare, applied, plan_initial, plan_write
from triolog.server.sharing.state.values import (
    Acknowledgement,
    AcquireMode,
    OffsetRange,
    RecordState,
    ShareConfig,
    ShareKey,
    StateBatch,
)

MEMBERS: Final = ("one", "two", "three")
CONFIG: Final = ShareConfig(record_lock_duration_ms=100, delivery_count_limit=3, partition_max_record_locks=30)
WITH_QUEUE: Final = attrs.evolve(CONFIG, dead_letter_topic="dlq")
KINDS: Final = {0: RecordState.ARCHIVED, 1: RecordState.ACKNOWLEDGED}
RELEASED, REJECTED, RENEW = 2, 3, 4


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

    def given_back(self, given_up: RecordState) -> RecordState:
        return given_up if self.count >= CONFIG.delivery_count_limit else RecordState.AVAILABLE

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
        self.given_up = RecordState.ARCHIVED
        """The state of records that no member gets any more."""

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
                target = self.given_up if kind == REJECTED else KINDS.get(kind)
                record.target = record.given_back(self.given_up) if target is None else target
                records.append(record)
        return None

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        records = [each for each in self.records.values() if each.member == member and each.target is None]
        for record in records:
            record.target = record.given_back(self.given_up)
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
                record.settle(record.given_back(self.given_up))
        self.store(expired)
        self.forget()

    @rule(has_queue=st.booleans())
    def configure(self, has_queue: bool) -> None:
        self.state.config = WITH_QUEUE if has_queue else CONFIG
        self.given_up = RecordState.ARCHIVING if has_queue else RecordState.ARCHIVED

    @precondition(lambda self: self.state.dead_letters)
    @rule(data=st.data())
    def write_dead_letters(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(self.state.dead_letters), min_size=1, unique=True))
        self.state.dead_letters = [each for each in self.state.dead_letters if each not in some]
        for first, last, count, was_rejected in some:
            for offset in range(max(first, self.start), last + 1):
                record = self.records[offset]
                assert (record.state, record.count, record.target) == (RecordState.ARCHIVING, count, None)
                assert was_rejected or count >= CONFIG.delivery_count_limit
                record.settle(RecordState.ARCHIVED)
        self.store(self.state.archive_dead(some))
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
        self.state = SharePartitionState.restored(self.stored.start_offset, self.stored.batches, self.state.config)
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
        dead = [each for first, last, *_ in self.state.dead_letters for each in range(max(first, self.start), last + 1)]
        assert sorted(dead) == [each for each, record in found.items() if record.state is RecordState.ARCHIVING]
        deadlines = [each.deadline_ms for each in found.values() if each.deadline_ms is not None and each.target is None]
        assert not deadlines or (self.state.next_deadline_ms or self.now_ms) <= min(deadlines)


TestSharePartition = SharePartitionMachine.TestCase


OPTIMIZED, LIMITED = values.AcquireMode
TENS: Final = [values.OffsetRange(first, first + 9) for first in range(0, 50, 10)]
ACCEPT, RELEASE = 1, 2


def take(
    state: SharePartitionState,
    fetched: Sequence[values.OffsetRange] = TENS,
    *,
    max_records: int = 500,
    batch_size: int = 500,
    mode: values.AcquireMode = OPTIMIZED,
    member: str = "member",
    aborted: Sequence[values.OffsetRange] = (),
) -> list[values.AcquiredRecords]:
    offset = state.next_fetch_offset()
    read = [each for each in fetched if each.last >= offset]
    acquisition = Acquisition(state, member, mode, batch_size, 0)
    return acquisition.take(read, fetch_offset=offset, max_records=max_records, aborted=aborted)


def give_back(state: SharePartitionState, first: int, last: int, kind: int = RELEASE) -> None:
    state.commit(state.acknowledge("member", [values.Acknowledgement(first, last, [kind])], 0))


def test_new_records_come_in_whole_record_batches_and_in_pieces_of_the_wanted_size() -> None:
    assert take(SharePartitionState(0), max_records=25) == [(0, 29, 1)]
    assert take(SharePartitionState(7), max_records=1) == [(7, 9, 1)]
    state = SharePartitionState(0)
    assert take(state, batch_size=15) == [(0, 19, 1), (20, 39, 1), (40, 49, 1)]
    give_back(state, 0, 49)
    assert take(state, max_records=15) == [(0, 19, 2)], "again as they were acquired"
    state = SharePartitionState(0)
    assert take(state, max_records=25, mode=LIMITED) == [(0, 24, 1)], "no more than wanted; others get the rest"
    assert take(state, max_records=25, mode=LIMITED) == [(25, 29, 1), (30, 49, 1)]
    for mode in values.AcquireMode:
        assert take(SharePartitionState(50), mode=mode) == []
        for most in (0, -1):
            assert take(SharePartitionState(0), max_records=most, mode=mode) == []


def test_offsets_without_records_are_passed_over_and_given_up() -> None:
    state = SharePartitionState(0)
    assert take(state, [values.OffsetRange(5, 9), values.OffsetRange(20, 24)]) == [(5, 24, 1)]
    assert state.start_offset == 5
    state = SharePartitionState(0)
    take(state, batch_size=10, max_records=30)
    give_back(state, 0, 29)
    assert take(state, TENS[2:], max_records=1) == [(20, 29, 2)]
    assert state.start_offset == 20


def test_at_the_limit_of_locks_only_what_was_given_before_is_given() -> None:
    state = SharePartitionState(0, ShareConfig(partition_max_record_locks=20))
    assert take(state) == [(0, 19, 1)]
    assert not state.can_acquire()
    assert take(state) == []
    give_back(state, 0, 4)
    assert state.can_acquire()
    assert take(state) == [(0, 4, 2)]


def test_records_given_back_come_in_smaller_pieces_until_they_are_archived() -> None:
    state = SharePartitionState(0)
    sizes = []
    for _ in range(5):
        acquired = take(state, TENS[:1])
        sizes.append(acquired[0].last_offset - acquired[0].first_offset + 1)
        give_back(state, acquired[0].first_offset, acquired[-1].last_offset)
    assert sizes == [10, 10, 10, 5, 1]
    assert state.start_offset == 1


def test_what_is_refused_in_part_has_not_happened() -> None:
    state = SharePartitionState(0)
    take(state, max_records=10)
    with pytest.raises(RequestError):
        state.acknowledge("member", [values.Acknowledgement(0, 9, [ACCEPT]), values.Acknowledgement(20, 29, [ACCEPT])], 0)
    give_back(state, 0, 9)
    assert take(state, max_records=10) == [(0, 9, 2)]


def test_records_of_aborted_transactions_nobody_gets() -> None:
    state = SharePartitionState(0)
    assert take(state, TENS[:3], aborted=[TENS[0], TENS[2]]) == [(10, 19, 1)]
    assert state.start_offset == 10
    give_back(state, 10, 19, kind=1)
    assert state.start_offset == 30


def test_after_a_restart_offsets_that_are_not_stored_come_as_new() -> None:
    stored = [
        values.StateBatch(10, 14, values.RecordState.ACKNOWLEDGED, 1),
        values.StateBatch(20, 24, values.RecordState.AVAILABLE, 2),
    ]
    assert take(SharePartitionState.restored(5, stored)) == [(5, 9, 1), (15, 19, 1), (20, 24, 3), (25, 49, 1)]
    state = SharePartitionState.restored(0, [values.StateBatch(30, 34, values.RecordState.AVAILABLE, 1)])
    assert take(state, max_records=15) == [(0, 19, 1)], "up to the end of a record batch"
    assert take(state, max_records=12) == [(20, 29, 1), (30, 34, 2)]


INITIAL = stored_state.applied(None, stored_state.plan_initial(None, state_epoch=3, start_offset=0, now_ms=7))
STATES = st.sampled_from([each for each in RecordState if each is not RecordState.ACQUIRED])
BATCHES = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    *(st.integers(0, 30), st.integers(0, 8), STATES, st.integers(0, 3)),
)


def by_offset(batches: tuple[StateBatch, ...] | list[StateBatch]) -> dict[int, tuple[RecordState, int]]:
    return {each: (state, count) for first, last, state, count in batches for each in range(first, last + 1)}


@given(st.lists(BATCHES), st.lists(BATCHES), st.integers(-1, 30))
def test_the_newest_word_on_an_offset_counts(old: list[StateBatch], new: list[StateBatch], start: int) -> None:
    batches = stored_state.overlaid(stored_state.overlaid((), old, -1), new, start)
    assert by_offset(batches) == {each: word for each, word in by_offset([*old, *new]).items() if each >= start}
    assert len(by_offset(batches)) == sum(each.last_offset - each.first_offset + 1 for each in batches)
    assert list(batches) == sorted(batches)


def test_after_many_updates_comes_a_snapshot_that_says_the_same() -> None:
    stored, first, batch = INITIAL, StateBatch(8, 8, RecordState.ARCHIVED, 2), StateBatch(4, 5, RecordState.ACKNOWLEDGED, 1)
    for number in range(stored_state.UPDATES_PER_SNAPSHOT + 1):
        said = [batch] if number else [first]
        value = stored_state.plan_write(
            stored, start_offset=2, delivery_complete_count=3, batches=said, leader_epoch=0, now_ms=9
        )
        assert isinstance(value, ShareSnapshotValue) == (number == stored_state.UPDATES_PER_SNAPSHOT)
        before, stored = stored, stored_state.applied(stored, value)
    assert stored == attrs.evolve(before, snapshot_epoch=1, updates=0, written_ms=9)
    assert (stored.state_epoch, stored.start_offset, stored.batches) == (3, 2, (batch, first))


def test_a_snapshot_of_the_same_changes_nothing_but_its_epoch() -> None:
    update = stored_state.plan_write(INITIAL, start_offset=1, delivery_complete_count=0, batches=[], leader_epoch=0, now_ms=9)
    stored = stored_state.applied(INITIAL, update)
    again = stored_state.applied(stored, stored_state.plan_snapshot(stored, now_ms=10))
    assert again == attrs.evolve(stored, snapshot_epoch=1, updates=0, written_ms=10)
    anew = stored_state.applied(INITIAL, stored_state.plan_initial(INITIAL, state_epoch=4, start_offset=9, now_ms=11))
    assert (anew.snapshot_epoch, anew.state_epoch, anew.start_offset, anew.batches) == (1, 4, 9, ())


@pytest.mark.parametrize(("start_offset", "done"), [(-1, -1), (0, 0), (9, 0)])
def test_how_many_are_done_with_is_known_where_the_start_is(start_offset: int, done: int) -> None:
    value = stored_state.plan_initial(None, state_epoch=0, start_offset=start_offset, now_ms=0)
    assert value.delivery_complete_count == done


@pytest.mark.parametrize(("state", "last", "count"), [(1, 1, 1), (5, 1, 1), (0, -1, 1), (0, 1, -1)])
def test_states_that_are_none_are_refused(state: int, last: int, count: int) -> None:
    batch = ShareStateBatch(first_offset=0, last_offset=last, delivery_state=state, delivery_count=count)
    with pytest.raises(InvalidRecordError, match="of a share-partition are in state"):
        stored_state.applied(INITIAL, ShareUpdateValue(snapshot_epoch=0, leader_epoch=0, start_offset=0, state_batches=[batch]))


def test_an_update_needs_a_snapshot_and_keeps_the_start_that_it_does_not_name() -> None:
    update = ShareUpdateValue(snapshot_epoch=0, leader_epoch=0, start_offset=-1, state_batches=[])
    assert stored_state.applied(attrs.evolve(INITIAL, start_offset=5), update).start_offset == 5
    with pytest.raises(InvalidRecordError, match="no snapshot"):
        stored_state.applied(None, update)


KEYS: Final = [ShareKey("group", bytes(16), number) for number in range(4)]
CONNECTION: Final = object()


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions()


def begin(sessions: ShareSessions, member: str = "m", partitions: int = 1) -> None:
    sessions.begin("group", member, KEYS[:partitions], CONNECTION, says_something=False)


def test_only_the_next_epoch_or_the_final_one_is_right_and_after_the_last_comes_the_first(sessions: ShareSessions) -> None:
    begin(sessions)
    for epoch in (0, 2, INT32_MAX, -2):
        with pytest.raises(RequestError, match=r"^INVALID_SHARE_SESSION_EPOCH"):
            sessions.go_on("group", "m", epoch, KEYS)
    assert sessions.go_on("group", "m", -1).epoch == sessions.acknowledge("group", "m", -1).epoch == 1
    session = sessions.go_on("group", "m", 1)
    assert list(session.partitions) == KEYS[:1]
    session.epoch = INT32_MAX
    assert sessions.go_on("group", "m", INT32_MAX).epoch == 1
    begin(sessions, partitions=2)
    session = sessions.go_on("group", "m", 1, [KEYS[3], KEYS[0]], [KEYS[1], KEYS[2]])
    assert (list(session.partitions), session.epoch) == ([KEYS[0], KEYS[3]], 2), "added and forgotten"


def test_sessions_end_with_their_connection(sessions: ShareSessions) -> None:
    for member in "aab":
        begin(sessions, member)
    assert len(sessions) == 2, "a member that begins again has one session"
    assert sessions.disconnected(object()) == ([], set())
    assert sessions.has_group("group")
    assert sessions.remove("group", "a") is not None
    assert sessions.remove("group", "a") is None
    ended, groups = sessions.disconnected(CONNECTION)
    assert ([each.member_id for each in ended], groups) == (["b"], {"group"})
    assert not sessions.has_group("group")
    assert sessions.disconnected(CONNECTION) == ([], set())


def test_there_are_limits(sessions: ShareSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSION_PARTITIONS", 3)
    monkeypatch.setattr(module, "MAX_PARTITIONS", 4)
    with pytest.raises(RequestError, match=r"^INVALID_REQUEST"):
        begin(sessions, partitions=4)
    begin(sessions, partitions=2)
    begin(sessions, "other", partitions=2)
    with pytest.raises(RequestError, match=r"^SHARE_SESSION_LIMIT_REACHED"):
        begin(sessions, "third")
    with pytest.raises(RequestError):
        sessions.go_on("group", "m", 1, KEYS)
    sessions.remove("group", "other")
    begin(sessions, "third")
