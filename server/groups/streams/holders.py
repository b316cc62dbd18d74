"""Which process has which task, with what it has been told to give up and has not (Kafka: StreamsGroup's maps of process
ids)."""

from __future__ import annotations

from typing import Self

import attrs

from .member import StreamsMember
from .tasks import TaskId


@attrs.define(eq=False, repr=False)
class TaskHolders:
    """See the module. Owner: the group."""

    _active: dict[TaskId, str] = attrs.field(factory=dict)
    _copies: dict[TaskId, frozenset[str]] = attrs.field(factory=dict)

    def copy(self) -> Self:
        return type(self)(dict(self._active), dict(self._copies))

    def active(self, task: TaskId) -> str | None:
        """The process that runs a task."""
        return self._active.get(task)

    def has_copy(self, process_id: str, task: TaskId) -> bool:
        """Whether a process has it as standby or warm-up."""
        return process_id in self._copies.get(task, ())

    def replace(self, before: StreamsMember | None, after: StreamsMember | None) -> None:
        """A member has changed, come or gone."""
        if before is not None:
            self._remove(before)
        if after is not None:
            self._add(after)

    def _remove(self, member: StreamsMember) -> None:
        for held in (member.assigned, member.revoking):
            for task in held.active:
                if self._active.get(task) == member.process_id:
                    del self._active[task]
            for task in (*held.standby, *held.warmup):
                left = self._copies.get(task, frozenset()) - {member.process_id}
                if left:
                    self._copies[task] = left
                else:
                    self._copies.pop(task, None)

    def _add(self, member: StreamsMember) -> None:
        for held in (member.assigned, member.revoking):
            for task in held.active:
                self._active[task] = member.process_id
            for task in (*held.standby, *held.warmup):
                self._copies[task] = self._copies.get(task, frozenset()) | {member.process_id}
