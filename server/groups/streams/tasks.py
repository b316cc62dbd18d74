"""Tasks of a Streams application: one for each partition of each subtopology, and what a member has or is to have of them
(KIP-1071; Kafka: TasksTuple, TasksTupleWithEpochs). Standby and warm-up tasks keep a copy of the state of an active one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import attrs

from ....protocol.coordinator.streams_group_records import StreamsGroupCurrentTaskIds, StreamsGroupTaskIds


class TaskId(NamedTuple):
    subtopology_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology_id}-{self.partition}"


TaskIds = frozenset[TaskId]
NO_TASK_IDS: Final[TaskIds] = frozenset()
TaskEpochs = Mapping[TaskId, int]
"""Active tasks, and since which epoch of its member each of them is the member's."""
NO_EPOCHS: Final[TaskEpochs] = {}


@attrs.frozen
class Tasks:
    """The tasks that a member is to have, or states that it has."""

    active: TaskIds = NO_TASK_IDS
    standby: TaskIds = NO_TASK_IDS
    warmup: TaskIds = NO_TASK_IDS

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


NO_TASKS: Final = Tasks()


@attrs.frozen
class HeldTasks:
    """The tasks that a member has."""

    active: TaskEpochs = NO_EPOCHS
    standby: TaskIds = NO_TASK_IDS
    warmup: TaskIds = NO_TASK_IDS

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    @property
    def tasks(self) -> Tasks:
        return Tasks(frozenset(self.active), self.standby, self.warmup)

    def has_any_of(self, tasks: Tasks) -> bool:
        """Return whether this set holds some of the tasks, in the same role."""
        return not (
            tasks.active.isdisjoint(self.active)
            and tasks.standby.isdisjoint(self.standby)
            and tasks.warmup.isdisjoint(self.warmup)
        )

    def has_all_of(self, tasks: Tasks) -> bool:
        return tasks.active <= self.active.keys() and tasks.standby <= self.standby and tasks.warmup <= self.warmup


NOTHING_HELD: Final = HeldTasks()


# ---- as records and messages have them ---------------------------------------------------------------------------------------


def by_subtopology(tasks: Collection[TaskId]) -> list[tuple[str, list[int]]]:
    """Return (subtopology, sorted partitions), so that equal assignments have equal bytes."""
    found: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        found.setdefault(subtopology_id, []).append(partition)
    return list(found.items())


def task_ids(parts: Iterable[tuple[str, Iterable[int]]]) -> TaskIds:
    return frozenset(TaskId(subtopology_id, partition) for subtopology_id, partitions in parts for partition in partitions)


def recorded(tasks: TaskIds) -> list[StreamsGroupTaskIds]:
    return [StreamsGroupTaskIds(subtopology_id=part, partitions=numbers) for part, numbers in by_subtopology(tasks)]


def from_record(parts: Iterable[StreamsGroupTaskIds | StreamsGroupCurrentTaskIds]) -> TaskIds:
    return task_ids((part.subtopology_id, part.partitions) for part in parts)


def recorded_held(tasks: TaskIds) -> list[StreamsGroupCurrentTaskIds]:
    return [StreamsGroupCurrentTaskIds(subtopology_id=part, partitions=numbers) for part, numbers in by_subtopology(tasks)]


def recorded_epochs(tasks: TaskEpochs) -> list[StreamsGroupCurrentTaskIds]:
    return [
        StreamsGroupCurrentTaskIds(
            subtopology_id=part,
            partitions=numbers,
            assignment_epochs=[tasks[TaskId(part, number)] for number in numbers],
        )
        for part, numbers in by_subtopology(tasks.keys())
    ]


def epochs_from_record(parts: Iterable[StreamsGroupCurrentTaskIds], member_epoch: int) -> TaskEpochs:
    """Return the epochs of a record. Where it has none, or fewer than tasks, that is the member's epoch."""
    found: dict[TaskId, int] = {}
    for part in parts:
        epochs = part.assignment_epochs
        if epochs is None or len(epochs) != len(part.partitions):
            epochs = [member_epoch] * len(part.partitions)
        for number, epoch in zip(part.partitions, epochs, strict=True):
            found[TaskId(part.subtopology_id, number)] = epoch
    return found
