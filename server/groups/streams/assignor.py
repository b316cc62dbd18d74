"""The assignor `sticky` of Streams groups (KIP-1071; Kafka: StickyTaskAssignor, ProcessState).

Active tasks stay with the member that had them, then go to one that had a copy of their state, then to the least loaded
process, so that members have about equally many. Standby tasks of subtopologies with state come to processes that do not have
the task yet: to the former active member first, then to a former standby, then to the least loaded. With fewer processes than
copies some are left out. Where Kafka follows the order of a hash table, the first by name is first here. Of equally loaded
processes or members the one that got something longest ago is next.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import attrs

from .values import NO_TASKS, TaskId, Tasks

STICKY: Final = "sticky"


class AssignedMember(NamedTuple):
    """A member as the assignor sees it."""

    process_id: str
    tasks: Tasks = NO_TASKS
    """What it was to have so far."""


class SubtopologyTasks(NamedTuple):
    task_count: int
    is_stateful: bool


def assign_sticky(
    members: Mapping[str, AssignedMember], subtopologies: Mapping[str, SubtopologyTasks], standby_replicas: int
) -> dict[str, Tasks]:
    """Return the tasks of each member. There has to be a member."""
    run = _Run.of(members, subtopologies, standby_replicas)
    run.assign_active([TaskId(name, number) for name, part in subtopologies.items() for number in range(part.task_count)])
    if standby_replicas:
        stateful = [(name, part.task_count) for name, part in subtopologies.items() if part.is_stateful]
        run.assign_standby([TaskId(name, number) for name, count in stateful for number in range(count)], standby_replicas)
    return {
        member_id: Tasks(frozenset(run.active.get(member_id, ())), frozenset(run.standby.get(member_id, ())))
        for member_id in members
    }


def _by_partition(task: TaskId) -> tuple[int, str]:
    return task.partition, task.subtopology_id


@attrs.define(eq=False, repr=False)
class _Run:
    """A run of the assignor: an assignment under construction."""

    processes: dict[str, Process]
    process_of: dict[str, Process]
    """By member."""
    active_quota: Quota
    quota: Quota
    was_active: dict[TaskId, str]
    was_standby: dict[TaskId, list[str]]
    active: dict[str, set[TaskId]] = attrs.field(factory=dict)
    standby: dict[str, set[TaskId]] = attrs.field(factory=dict)

    @classmethod
    def of(
        cls, members: Mapping[str, AssignedMember], subtopologies: Mapping[str, SubtopologyTasks], standby_replicas: int
    ) -> _Run:
        active_count = sum(part.task_count for part in subtopologies.values())
        standby_count = standby_replicas * sum(part.task_count for part in subtopologies.values() if part.is_stateful)
        run = cls(
            processes={},
            process_of={},
            active_quota=Quota(active_count, len(members)),
            quota=Quota(active_count + standby_count, len(members)),
            was_active={},
            was_standby={},
        )
        for member_id in sorted(members):
            run._add(member_id, members[member_id])
        return run

    def _add(self, member_id: str, member: AssignedMember) -> None:
        process = self.processes.get(member.process_id)
        if process is None:
            process = self.processes[member.process_id] = Process(member.process_id)
        process.counts[member_id] = 0
        self.process_of[member_id] = process
        self.was_active.update(dict.fromkeys(member.tasks.active, member_id))
        for task in member.tasks.standby:
            self.was_standby.setdefault(task, []).append(member_id)

    # ---- active tasks ----------------------------------------------------------------------------------------------------

    def assign_active(self, tasks: list[TaskId]) -> None:
        left = []
        for task in sorted(tasks, key=_by_partition):
            member_id = self.was_active.get(task)
            if member_id is None or not self._keep_active(member_id, task):
                left.append(task)
        rest = []
        for task in left:
            member_id = self._least_loaded_standby(task)
            if member_id is None or not self._keep_active(member_id, task):
                rest.append(task)
        least_loaded = LeastLoaded.of(self.processes.values())
        for task in sorted(rest):
            given = least_loaded.give(task)
            assert given is not None, "there are no members"
            self._note_active(*given, task)

    def _keep_active(self, member_id: str, task: TaskId) -> bool:
        process = self.process_of[member_id]
        if process.counts[member_id] >= self.active_quota.per_member:
            return False
        self._note_active(member_id, process.add(member_id, task), task)
        return True

    def _note_active(self, member_id: str, count: int, task: TaskId) -> None:
        self.active.setdefault(member_id, set()).add(task)
        self.active_quota.note(count)
        self.quota.note(count)

    # ---- standby tasks ---------------------------------------------------------------------------------------------------

    def assign_standby(self, tasks: list[TaskId], replicas: int) -> None:
        left: list[tuple[TaskId, int]] = []
        for task in sorted(tasks, key=_by_partition, reverse=True):
            kept = 0
            while kept < replicas and self._keep_standby(task):
                kept += 1
            left.append((task, replicas - kept))
        least_loaded = LeastLoaded.of(self.processes.values())
        for task, missing in sorted(left, reverse=True):
            for _ in range(missing):
                given = least_loaded.give(task, again=False)
                if given is None:
                    break
                self._note_standby(*given, task)

    def _keep_standby(self, task: TaskId) -> bool:
        """Give a copy to a member that had the task, if it may have one more."""
        for member_id in (self.was_active.get(task), self._least_loaded_standby(task)):
            if member_id is None:
                continue
            process = self.process_of[member_id]
            if task not in process.tasks and process.counts[member_id] < self.quota.per_member:
                self._note_standby(member_id, process.add(member_id, task), task)
                return True
        return False

    def _note_standby(self, member_id: str, count: int, task: TaskId) -> None:
        self.standby.setdefault(member_id, set()).add(task)
        self.quota.note(count)

    def _least_loaded_standby(self, task: TaskId) -> str | None:
        """Return the least loaded member that had a copy of a task, preferably one whose process does not have it again."""
        found = self.was_standby.get(task, ())
        return min(
            found,
            key=lambda member_id: (
                task in self.process_of[member_id].tasks,
                self.process_of[member_id].load,
                self.process_of[member_id].counts[member_id],
            ),
            default=None,
        )


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
