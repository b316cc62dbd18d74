"""Records that a share group has begun and not finished (Kafka: InFlightBatch, InFlightState).

A batch was acquired at once: as long as all of its records are in the same state it is given and taken back whole. When they
are not it is *split*, and stays so. Equal neighbours are one *run*, so a batch takes memory for its differences, not for its
records.
"""

from __future__ import annotations

from typing import Self

import attrs

from .values import RecordState


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
