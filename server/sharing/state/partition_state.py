"""The in-flight records of a share group in one partition: a state machine (KIP-932; Kafka: SharePartition).

| state | becomes | by |
|---|---|---|
| available | acquired | a fetch; the delivery count goes up |
| acquired | acknowledged, archived, available | an acknowledgement of its member |
| acquired | available, or archived after the last delivery | the end of its lock, or of its member |
| acquired | archiving instead of archived, where the group has a dead-letter queue | a rejection, the last delivery |
| archiving | archived | the dead letter, once it is in its log (KIP-1191) |
| available, acquired | forgotten | retention of the log |

`start_offset` is the first offset that is not done, `next_offset` the first that no member has acquired yet. Between them the
log may have holes without records. An acknowledgement counts when it is stored: until then it is a `Change` that is committed
or rolled back, and nothing else happens to its records. The end of a lock counts at once, and is stored afterwards.

A batch (Kafka: InFlightBatch) was acquired at once: as long as all of its records are in the same state it is given and taken
back whole. When they are not it is *split*, and stays so. Equal neighbours are one *run*, so a batch takes memory for its
differences, not for its records.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

import attrs

from ....protocol.errors import ErrorCode, RequestError
from .values import (
    DEFAULT_SHARE_CONFIG,
    OUTCOMES,
    TARGETS,
    Acknowledgement,
    AcknowledgeType,
    DeadLetters,
    RecordState,
    ShareConfig,
    ShareCounters,
    StateBatch,
)


@attrs.define(eq=False, repr=False)
class Change:
    """New states of records, until they are stored."""

    batches: list[StateBatch] = attrs.field(factory=list)
    """To be stored."""
    runs: list[tuple[InFlightBatch, Run]] = attrs.field(factory=list)
    counted: Counter[str] = attrs.field(factory=Counter)
    """Records by outcome."""
    dead_letters: list[DeadLetters] = attrs.field(factory=list)
    """To be written once this is stored."""


@attrs.define(eq=False, repr=False)
class SharePartitionState:
    """See the module. Owner: the share-partition's actor."""

    start_offset: int
    config: ShareConfig = DEFAULT_SHARE_CONFIG
    counters: ShareCounters = attrs.field(factory=ShareCounters)
    batches: list[InFlightBatch] = attrs.field(factory=list)
    """By offset; for `acquisition` and nobody else."""
    next_offset: int = attrs.field()
    may_have_available: bool = False
    """Whether something below `next_offset` may be there for a fetch."""
    next_deadline_ms: int | None = None
    """No lock ends before; None: there is none."""
    dead_letters: list[DeadLetters] = attrs.field(factory=list)
    """Archiving records whose dead letters are not being written yet."""

    @next_offset.default
    def _nothing_given(self) -> int:
        return self.start_offset

    @classmethod
    def restored(
        cls,
        start_offset: int,
        stored: Sequence[StateBatch],
        config: ShareConfig = DEFAULT_SHARE_CONFIG,
        counters: ShareCounters | None = None,
    ) -> Self:
        """Return a stored state. Offsets between stored batches may have been given to a member: they come again."""
        state = cls(start_offset, config, counters or ShareCounters())
        for batch in sorted(stored):
            first = max(batch.first_offset, state.next_offset)
            if batch.last_offset < first:
                continue
            if first > state.next_offset:
                gap = Run(state.next_offset, first - 1, RecordState.AVAILABLE, 0)
                state.batches.append(InFlightBatch.of(gap, is_gap=True))
            run = Run(first, batch.last_offset, batch.state, batch.delivery_count)
            if run.state is RecordState.ARCHIVING:  # why is not stored
                state.dead_letters.append(_dead(run, was_rejected=run.delivery_count < config.delivery_count_limit))
            state.batches.append(InFlightBatch.of(run))
            state.next_offset = batch.last_offset + 1
        state.may_have_available = bool(state.batches)
        state.advance_start()
        return state

    # ---- questions -------------------------------------------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """Number of offsets from the first unfinished one to the last that was given."""
        return self.next_offset - self.start_offset

    @property
    def delivery_complete_count(self) -> int:
        """Number of these that are finished, or about to be."""
        return sum(run.count for batch in self.batches for run in batch.runs if (run.target or run.state).is_terminal)

    @property
    def acquired_count(self) -> int:
        """Number of these that members have."""
        return sum(run.count for batch in self.batches for run in batch.runs if run.state is RecordState.ACQUIRED)

    def next_fetch_offset(self) -> int:
        """Return the first offset that may have records for a member."""
        if self.may_have_available:
            for batch in self.batches:
                for run in batch.runs:
                    if run.is_available:
                        return run.first
            self.may_have_available = False
        return self.next_offset

    def can_acquire(self) -> bool:
        """Return whether a fetch may acquire records."""
        return self.in_flight_count < self.config.partition_max_record_locks or self.next_fetch_offset() != self.next_offset

    def runs(self) -> Iterator[Run]:
        """Yield everything in flight, by offset."""
        for batch in self.batches:
            yield from batch.runs

    # ---- where things are ------------------------------------------------------------------------------------------------

    def index_of(self, offset: int) -> int:
        """Return the index of the last batch that begins at an offset or before it; -1 where none does."""
        return bisect.bisect_right(self.batches, offset, key=_first) - 1

    def beginning_in(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches that begin at these offsets."""
        start = bisect.bisect_left(self.batches, first, key=_first)
        return self.batches[start : bisect.bisect_right(self.batches, last, key=_first)]

    def overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches that have some of these offsets."""
        index = self.index_of(first)
        before = [self.batches[index]] if index >= 0 and self.batches[index].last >= first else []
        return [*before, *self.beginning_in(first + 1, last)]

    # ---- locks -----------------------------------------------------------------------------------------------------------

    def lock_until(self, now_ms: int) -> int:
        """Return the end of a lock that begins now."""
        deadline_ms = now_ms + self.config.record_lock_duration_ms
        self._look_at(deadline_ms)
        return deadline_ms

    def _look_at(self, deadline_ms: int) -> None:
        if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms

    def expire(self, now_ms: int) -> list[StateBatch]:
        """Take back records whose lock has ended. Returns the batches to be stored."""
        if self.next_deadline_ms is None or self.next_deadline_ms > now_ms:
            return []
        self.next_deadline_ms = None
        expired = []
        for batch in self.batches:
            for run in batch.runs:
                if run.deadline_ms is None or run.target is not None:
                    continue
                if run.deadline_ms > now_ms:
                    self._look_at(run.deadline_ms)
                    continue
                run.settle(self._given_back(run))
                self.counters.lock_timeouts += run.count
                self.counters.archived += 0 if run.is_available else run.count
                if run.state is RecordState.ARCHIVING:
                    self.dead_letters.append(_dead(run, was_rejected=False))
                expired.append(_stored(run, run.state))
            batch.merge()
        self.may_have_available = self.may_have_available or bool(expired)
        self.advance_start()
        return expired

    def _given_back(self, run: Run) -> RecordState:
        """Return the state of records after a delivery that nothing came of."""
        is_last = run.delivery_count >= self.config.delivery_count_limit
        return self._given_up if is_last else RecordState.AVAILABLE

    @property
    def _given_up(self) -> RecordState:
        """The state of records that no member gets any more."""
        return RecordState.ARCHIVING if self.config.dead_letter_topic else RecordState.ARCHIVED

    # ---- what members say ------------------------------------------------------------------------------------------------

    def acknowledge(self, member: str, said: Sequence[Acknowledgement], now_ms: int) -> Change:
        """Plan acknowledgements of a member: all of them are valid, or nothing has happened but renewals. Raises RequestError:
        INVALID_RECORD_STATE, INVALID_REQUEST."""
        change = Change()
        try:
            for each in said:
                if each.last_offset >= self.start_offset:
                    self._acknowledge(change, member, each, now_ms)
        except RequestError:
            self.roll_back(change)
            raise
        return change

    def _acknowledge(self, change: Change, member: str, said: Acknowledgement, now_ms: int) -> None:
        for batch in self._acknowledged(said):
            first, last = max(said.first_offset, batch.first), min(said.last_offset, batch.last)
            if not all(run.is_owned_by(member) for run in batch.overlapping(first, last)):
                raise RequestError(
                    f"member {member!r} acknowledges the offsets {first} to {last}, but has not acquired all of them",
                    ErrorCode.INVALID_RECORD_STATE,
                )
            for kind, start, stop in _alike(said, first, last):
                self._take(change, batch, kind, (start, stop), now_ms)

    def _acknowledged(self, said: Acknowledgement) -> list[InFlightBatch]:
        """Return the batches that an acknowledgement names."""
        index = self.index_of(said.first_offset)
        if index < 0 and said.first_offset <= self.start_offset:
            index = self.index_of(self.start_offset)
        if index < 0:
            raise RequestError(
                "Batch record not found. The request batch offsets are not found in the cache.", ErrorCode.INVALID_RECORD_STATE
            )
        batches = [self.batches[index], *self.beginning_in(self.batches[index].first + 1, said.last_offset)]
        if batches[-1].last < said.first_offset:
            raise RequestError(
                "Batch record not found. The first offset in request is past acquired records.", ErrorCode.INVALID_REQUEST
            )
        if batches[-1].last < said.last_offset:
            raise RequestError(
                "Batch record not found. The last offset in request is past acquired records.", ErrorCode.INVALID_REQUEST
            )
        return [batch for batch in batches if batch.last >= said.first_offset]

    def _take(self, change: Change, batch: InFlightBatch, kind: int, offsets: tuple[int, int], now_ms: int) -> None:
        if kind == AcknowledgeType.RENEW:
            if not self.config.renew_acknowledge_enabled:
                raise RequestError("Renewing acquisition locks is not enabled for the group.", ErrorCode.INVALID_RECORD_STATE)
            deadline_ms = self.lock_until(now_ms)
            for run in batch.between(*offsets):
                run.deadline_ms = deadline_ms
                self.counters.renewed += run.count
            return
        target = TARGETS.get(AcknowledgeType(kind)) if kind in TARGETS else None
        if target is None:
            raise RequestError(f"unknown acknowledgement type {kind}", ErrorCode.INVALID_REQUEST)
        if kind == AcknowledgeType.REJECT:
            target = self._given_up
        for run in batch.between(*offsets):
            self._aim(change, batch, run, target)
            change.counted[OUTCOMES[AcknowledgeType(kind)]] += run.count

    def _aim(self, change: Change, batch: InFlightBatch, run: Run, target: RecordState) -> None:
        run.target = self._given_back(run) if target is RecordState.AVAILABLE else target
        if run.target is not target:
            change.counted["archived"] += run.count
        if run.target is RecordState.ARCHIVING:
            change.dead_letters.append(_dead(run, was_rejected=target is run.target))
        change.runs.append((batch, run))
        change.batches.append(_stored(run, run.target))

    def release(self, member: str) -> Change:
        """Plan to take back the records of a member that is gone."""
        change = Change()
        for batch in self.batches:
            for run in batch.runs:
                if run.is_owned_by(member):
                    self._aim(change, batch, run, RecordState.AVAILABLE)
                    change.counted["released"] += run.count
        return change

    def commit(self, change: Change) -> None:
        """Make a change true that is stored."""
        self.counters.add(change.counted)
        self.dead_letters += change.dead_letters
        for _, run in change.runs:
            assert run.target is not None
            run.settle(run.target)
            self.may_have_available = self.may_have_available or run.is_available
        for batch in {id(batch): batch for batch, _ in change.runs}.values():
            batch.merge()
        self.advance_start()

    def roll_back(self, change: Change) -> None:
        """Undo a change that is not stored. Locks that have ended meanwhile end with the next `expire`."""
        for _, run in change.runs:
            run.target = None
            if run.deadline_ms is not None:
                self._look_at(run.deadline_ms)

    def archive_dead(self, letters: Iterable[DeadLetters]) -> list[StateBatch]:
        """Archive records whose dead letters are written, or cannot be. Returns the batches to be stored."""
        archived = []
        for first, last, *_ in letters:
            for batch in self.overlapping(first, last):
                for run in [run for run in batch.overlapping(first, last) if run.state is RecordState.ARCHIVING]:
                    for each in batch.between(max(first, run.first), min(last, run.last)):
                        each.settle(RecordState.ARCHIVED)
                        archived.append(_stored(each, each.state))
                batch.merge()
        self.advance_start()
        return archived

    # ---- the start -------------------------------------------------------------------------------------------------------

    def archive_available(self, first: int, last: int) -> None:
        """Archive offsets that have no records any more."""
        for batch in self.overlapping(first, last):
            for run in batch.overlapping(first, last):
                if run.is_available:
                    for each in batch.between(max(first, run.first), min(last, run.last)):
                        each.settle(RecordState.ARCHIVED)
                    batch.is_gap = False
            batch.merge()
        self.advance_start()

    def move_start(self, log_start_offset: int) -> None:
        """Forget everything before the new start of the log, whichever member has it."""
        if log_start_offset <= self.start_offset:
            return
        self.start_offset = log_start_offset
        self.next_offset = max(self.next_offset, log_start_offset)
        self._drop_before(log_start_offset)
        self.advance_start()

    def advance_start(self) -> None:
        """Skip finished records at the start."""
        for batch in self.batches:
            for run in batch.runs:
                if not run.is_done:
                    self.start_offset = max(self.start_offset, run.first)
                    self._drop_before(self.start_offset)
                    return
        if self.batches:
            self.start_offset = self.next_offset
            self.batches.clear()

    def _drop_before(self, offset: int) -> None:
        index = self.index_of(offset)
        if index >= 0 and self.batches[index].last < offset:
            index += 1
        if index > 0:
            del self.batches[:index]
        if self.batches and self.batches[0].first < offset:
            self.batches[0].drop_before(offset)


def _first(batch: InFlightBatch) -> int:
    return batch.first


def _dead(run: Run, *, was_rejected: bool) -> DeadLetters:
    return DeadLetters(run.first, run.last, run.delivery_count, was_rejected)


def _stored(run: Run, state: RecordState) -> StateBatch:
    return StateBatch(run.first, run.last, state, run.delivery_count)


def _alike(said: Acknowledgement, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield (type, first offset, last offset) of neighbours with the same acknowledgement."""
    types = said.types
    if len(types) == 1:
        yield types[0], first, last
        return
    start = first
    for offset in range(first, last + 1):
        if offset == last or types[offset + 1 - said.first_offset] != types[offset - said.first_offset]:
            yield types[offset - said.first_offset], start, offset
            start = offset + 1


@attrs.define(eq=False, repr=False)
class Run:
    """Offsets of one batch in the same state, both ends included."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    member: str | None = None
    """Who has them."""
    deadline_ms: int | None = None
    """When the lock ends."""
    target: RecordState | None = None
    """What they are about to be, while that is on its way into the log: nothing else can happen to them."""

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.target is None

    @property
    def is_done(self) -> bool:
        return self.target is None and self.state.is_terminal

    def acquire(self, member: str, deadline_ms: int) -> None:
        """Give them to a member again."""
        self.state, self.member, self.deadline_ms = RecordState.ACQUIRED, member, deadline_ms
        self.delivery_count += 1

    def settle(self, state: RecordState) -> None:
        """End the lock: no member has them any more."""
        self.state, self.member, self.deadline_ms, self.target = state, None, None, None

    def is_owned_by(self, member: str) -> bool:
        """Return whether the member may acknowledge the records."""
        return self.state is RecordState.ACQUIRED and self.target is None and self.member == member

    def cut(self, offset: int) -> Run:
        """End before `offset`. Returns the rest."""
        rest = attrs.evolve(self, first=offset)
        self.last = offset - 1
        return rest

    def is_like(self, other: Run) -> bool:
        return (self.state, self.delivery_count, self.member, self.deadline_ms, self.target) == (
            other.state,
            other.delivery_count,
            other.member,
            other.deadline_ms,
            other.target,
        )


@attrs.define(eq=False, repr=False)
class InFlightBatch:
    """Records that were acquired together, or that were stored as one."""

    runs: list[Run]
    """In the order of their offsets, without holes."""
    size: int
    """How many offsets it had at first."""
    is_split: bool = False
    is_gap: bool = False
    """Nobody has acquired it since the start: the log says of what is before it and behind it, not of this."""

    @classmethod
    def of(cls, run: Run, *, is_gap: bool = False) -> Self:
        return cls([run], run.count, is_gap=is_gap)

    @property
    def first(self) -> int:
        return self.runs[0].first

    @property
    def last(self) -> int:
        return self.runs[-1].last

    def between(self, first: int, last: int) -> list[Run]:
        """Return the runs inside these offsets; a run that reaches over an end is cut there."""
        if first > self.first or last < self.last:
            self.is_split = True
        self._cut_at(first)
        self._cut_at(last + 1)
        return [run for run in self.runs if first <= run.first and run.last <= last]

    def _cut_at(self, offset: int) -> None:
        for index, run in enumerate(self.runs):
            if run.first < offset <= run.last:
                self.runs.insert(index + 1, run.cut(offset))
                return

    def overlapping(self, first: int, last: int) -> list[Run]:
        """Return the runs that have some of these offsets, uncut."""
        return [run for run in self.runs if run.first <= last and run.last >= first]

    def drop_before(self, offset: int) -> None:
        """Forget offsets, but not all of them. Runs are not cut: one may be part of a change."""
        self.runs = [run for run in self.runs if run.last >= offset]
        self.runs[0].first = max(self.runs[0].first, offset)
        self.is_split = True

    def merge(self) -> None:
        """Join neighbours in the same state."""
        merged = self.runs[:1]
        for run in self.runs[1:]:
            if merged[-1].is_like(run) and run.target is None:
                merged[-1].last = run.last
            else:
                merged.append(run)
        self.runs = merged
