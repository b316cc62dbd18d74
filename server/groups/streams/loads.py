"""The load of the processes of a Streams application while tasks are assigned (Kafka: ProcessState). Of equally loaded ones
the one that got something longest ago is next, as in Kafka's queues for two."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator

import attrs

from .tasks import TaskId


@attrs.define(eq=False, repr=False)
class Process:
    """An instance of the application, with one member for each of its threads. Owner: one run of the assignor."""

    process_id: str
    counts: dict[str, int] = attrs.field(factory=dict)
    """Tasks of each member."""
    tasks: set[TaskId] = attrs.field(factory=set)
    task_count: int = 0
    _by_load: list[tuple[int, int, str]] | None = None
    """A heap of (tasks, turn, member), while it is right."""
    _turns: Iterator[int] = attrs.field(factory=itertools.count)

    @property
    def load(self) -> float:
        """Tasks per member."""
        return self.task_count / len(self.counts)

    def add(self, member_id: str, task: TaskId) -> int:
        """Give a task to a member. Returns how many it has now."""
        self._by_load = None
        return self._add(member_id, task)

    def _add(self, member_id: str, task: TaskId) -> int:
        self.tasks.add(task)
        self.task_count += 1
        self.counts[member_id] += 1
        return self.counts[member_id]

    def add_to_least_loaded(self, task: TaskId) -> tuple[str, int]:
        """Give a task to the member with the fewest. Returns that member, and how many it has now."""
        if self._by_load is None:
            self._by_load = [(count, next(self._turns), member_id) for member_id, count in self.counts.items()]
            heapq.heapify(self._by_load)
        _, _, member_id = self._by_load[0]
        count = self._add(member_id, task)
        heapq.heapreplace(self._by_load, (count, next(self._turns), member_id))
        return member_id, count


@attrs.define(eq=False, repr=False)
class Quota:
    """The number of tasks that a member may have for all to have about as many. A member that has so many is not counted any
    more."""

    _tasks: int
    _members: int
    per_member: int = attrs.field(init=False)

    @per_member.default
    def _share(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def note(self, count: int) -> None:
        """Note that a member has so many tasks now."""
        if count == self.per_member:
            self._members -= 1
            self._tasks -= count
            self.per_member = self._share()


@attrs.define(eq=False, repr=False)
class LeastLoaded:
    """Processes by load. Owner: one run of the assignor; while it lives tasks are given through it only."""

    _heap: list[tuple[float, int, Process]]
    """(load, turn, process)"""
    _turns: Iterator[int]

    @classmethod
    def of(cls, processes: Iterable[Process]) -> LeastLoaded:
        turns = itertools.count()
        heap = [(process.load, next(turns), process) for process in processes]
        heapq.heapify(heap)
        return cls(heap, turns)

    def give(self, task: TaskId, *, again: bool = True) -> tuple[str, int] | None:
        """Give a task to the least loaded process; with `again` False, to one that does not have it yet. Returns the member and
        how many it has now, None when there is no such process."""
        passed = []
        given = None
        while self._heap and given is None:
            _, _, process = heapq.heappop(self._heap)
            if again or task not in process.tasks:
                given = process.add_to_least_loaded(task)
            passed.append(process)
        for process in reversed(passed):
            heapq.heappush(self._heap, (process.load, next(self._turns), process))
        return given
