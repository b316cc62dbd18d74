"""The assignor `sticky` of Streams groups (KIP-1071; Kafka: StickyTaskAssignor).

Active tasks stay with the member that had them, then go to one that had a copy of their state, then to the least loaded
process, so that members have about equally many. Standby tasks of subtopologies with state come to processes that do not have
the task yet: to the former active member first, then to a former standby, then to the least loaded. With fewer processes than
copies some are left out. Where Kafka follows the order of a hash table, the first by name is first here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import attrs

from .loads import LeastLoaded, Process, Quota
from .tasks import NO_TASKS, TaskId, Tasks

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
