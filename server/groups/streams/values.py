"""Inputs and outputs of the state machine of Streams groups, and the tasks of an application: one for each partition of each
subtopology (KIP-1071; Kafka: StreamsGroupHeartbeat, StreamsGroupDescribe, without their versions, TasksTuple,
TasksTupleWithEpochs). Standby and warm-up tasks keep a copy of the state of an active one.

Times are whole milliseconds of a clock that only goes forward.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import attrs

from ....protocol.coordinator.streams_group_records import (
    StreamsGroupCurrentTaskIds,
    StreamsGroupTaskIds,
    StreamsGroupTopologyValue,
)
from ....protocol.types import TopicPartition
from ..assigned.values import MemberHeartbeat, MemberTimes, by_first, epochs_in
from ..values import GroupState


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


def task_ids(parts: Iterable[tuple[str, Iterable[int]]]) -> TaskIds:
    return frozenset(TaskId(subtopology_id, partition) for subtopology_id, partitions in parts for partition in partitions)


def recorded(tasks: TaskIds) -> list[StreamsGroupTaskIds]:
    return [StreamsGroupTaskIds(subtopology_id=part, partitions=numbers) for part, numbers in by_first(tasks).items()]


def from_record(parts: Iterable[StreamsGroupTaskIds | StreamsGroupCurrentTaskIds]) -> TaskIds:
    return task_ids((part.subtopology_id, part.partitions) for part in parts)


def recorded_held(tasks: TaskIds | TaskEpochs) -> list[StreamsGroupCurrentTaskIds]:
    """Return the record of tasks; of active ones with their epochs."""
    return [
        StreamsGroupCurrentTaskIds(
            subtopology_id=part,
            partitions=numbers,
            assignment_epochs=[tasks[TaskId(part, number)] for number in numbers] if isinstance(tasks, Mapping) else None,
        )
        for part, numbers in by_first(tasks).items()
    ]


def epochs_from_record(parts: Iterable[StreamsGroupCurrentTaskIds], member_epoch: int) -> TaskEpochs:
    named = ((part.subtopology_id, part.partitions, part.assignment_epochs) for part in parts)
    return {TaskId(part, number): epoch for part, number, epoch in epochs_in(named, member_epoch)}


STREAMS_TYPE: Final = "streams"
"""What ListGroups calls groups of this kind, and their protocol type."""


class StreamsStatusCode(enum.IntEnum):
    """The statuses that members of an application get with their tasks."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class StreamsStatus(NamedTuple):
    code: StreamsStatusCode
    detail: str


@attrs.frozen
class StreamsTimes(MemberTimes):
    """The timeouts and replica counts of a group, from its configuration."""

    initial_rebalance_delay_ms: int = 3_000
    """How long an empty group waits for more members before it assigns."""
    num_standby_replicas: int = 0


class Endpoint(NamedTuple):
    """The place where an instance answers queries of its state."""

    host: str
    port: int


@attrs.frozen(kw_only=True)
class StreamsHeartbeat(MemberHeartbeat):
    """A sign of life of a member, with its news; None for a field that has not changed."""

    endpoint_epoch: int = 0
    """The latest of the endpoints that it knows."""
    topology: StreamsGroupTopologyValue | None = None
    active: TaskIds | None = None
    standby: TaskIds | None = None
    warmup: TaskIds | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] | None = None
    has_task_offsets: bool = False
    has_task_end_offsets: bool = False
    shutdown_application: bool = False

    @property
    def topology_epoch(self) -> int | None:
        return None if self.topology is None else self.topology.epoch

    @property
    def owned(self) -> Tasks | None:
        """The tasks that it has at this moment. None confirms nothing."""
        if self.active is None or self.standby is None or self.warmup is None:
            return None
        return Tasks(self.active, self.standby, self.warmup)


class EndpointPartitions(NamedTuple):
    """Partitions of topics whose state an endpoint has."""

    endpoint: Endpoint
    active: tuple[tuple[str, tuple[int, ...]], ...]
    standby: tuple[tuple[str, tuple[int, ...]], ...]


@attrs.frozen(kw_only=True)
class InternalTopic:
    """A topic that the application needs and the server creates."""

    name: str
    partitions: int
    replication_factor: int = 0
    """0: the server's."""
    configs: tuple[tuple[str, str], ...] = ()


@attrs.frozen(kw_only=True)
class StreamsHeartbeatAnswer:
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    statuses: tuple[StreamsStatus, ...] = ()
    assignment: Tasks | None = None
    """What it is to run from now on; None: as it is."""
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    """None: as they were."""
    missing_topics: tuple[InternalTopic, ...] = ()
    """To be made, if the member may."""


@attrs.frozen(kw_only=True)
class StreamsMemberDescription:
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    endpoint: Endpoint | None
    client_tags: tuple[tuple[str, str], ...]
    assignment: Tasks = NO_TASKS
    revoking: Tasks = NO_TASKS
    """What it has been told to give up, and has not said that it did."""
    target_assignment: Tasks = NO_TASKS


@attrs.frozen(kw_only=True)
class SubtopologyDescription:
    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[InternalTopic, ...]
    repartition_source_topics: tuple[InternalTopic, ...]

    def sources(self) -> Iterator[str]:
        """Yield every topic that it reads."""
        yield from self.source_topics
        yield from (topic.name for topic in self.repartition_source_topics)


@attrs.frozen(kw_only=True)
class StreamsGroupDescription:
    """A group as StreamsGroupDescribe shows it, with the statuses of its members."""

    group_id: str
    state: GroupState
    group_epoch: int
    assignment_epoch: int
    topology_epoch: int
    subtopologies: tuple[SubtopologyDescription, ...] = ()
    members: tuple[StreamsMemberDescription, ...] = ()
    statuses: tuple[StreamsStatus, ...] = ()
    """What all members are told; of topics, what the last heartbeat has found. After a start nothing is known before one."""
    shutdown_member_id: str | None = None
    """Who has asked for the end of the application."""

    def source_topics(self) -> frozenset[str]:
        """Return every topic that the application reads, its own included."""
        return frozenset(name for part in self.subtopologies for name in part.sources())

    def read_by(self, member: StreamsMemberDescription) -> Iterator[TopicPartition]:
        """Yield the partitions that a member's active tasks read; a topic may have fewer partitions than a subtopology has
        tasks."""
        parts = {part.subtopology_id: part for part in self.subtopologies}
        for task in sorted(member.assignment.active):
            part = parts.get(task.subtopology_id)
            if part is not None:
                yield from (TopicPartition(name, task.partition) for name in part.sources())
