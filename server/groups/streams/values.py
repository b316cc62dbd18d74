"""Inputs and outputs of the state machine of Streams groups (KIP-1071; Kafka: StreamsGroupHeartbeat, StreamsGroupDescribe,
without their versions).

Times are whole milliseconds of a clock that only goes forward.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import attrs

from ....protocol.coordinator.streams_group_records import StreamsGroupTopologyValue
from ....protocol.types import TopicPartition
from ..assigned.values import MemberHeartbeat, MemberTimes
from ..values import GroupState
from .tasks import NO_TASKS, TaskIds, Tasks

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
