"""A Streams group in records of `__consumer_offsets` (KIP-1071; Kafka: the classes StreamsGroup*Key and StreamsGroup*Value).

| key | version | fields | value says |
|---|---:|---|---|
| metadata | 17 | group | group epoch; a hash of the topics; the topology whose topics are as they should be, tagged |
| member metadata | 19 | group, member | who it is, of which process, with which topology |
| target assignment metadata | 20 | group | the epoch of the target assignment; when it was made, tagged |
| target assignment member | 21 | group, member | the tasks that the member is to have |
| current member assignment | 22 | group, member | the tasks that it has, active ones with the epoch since which, tagged |
| topology | 23 | group | what the application is made of |

No record has the number 18. How keys and values lie in bytes is in `fields`.
"""

from __future__ import annotations

from typing import Any, Final

from ..schema.fields import INT8, INT16, INT32, INT64, STRING, UINT16, struct, wire
from .fields import GroupKey, MemberKey, RecordKinds

NO_TOPOLOGY_EPOCH: Final = -1
NO_TIMESTAMP: Final = 0


class StreamsGroupMetadataKey(GroupKey): ...


@struct
class StreamsGroupKeyValue:
    key: str = wire(STRING)
    value: str = wire(STRING)


@struct
class StreamsGroupMetadataValue:
    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64)
    """Of the topics that the topology needs. What it is of is for the writer to know, as for share groups."""
    validated_topology_epoch: int = wire(INT32, tag=0, default=NO_TOPOLOGY_EPOCH)
    last_assignment_configs: list[StreamsGroupKeyValue] | None = wire(
        [StreamsGroupKeyValue], nullable="0+", tag=1, default=None
    )
    """What the assignor was configured with."""


class StreamsGroupMemberMetadataKey(MemberKey): ...


@struct
class StreamsGroupEndpoint:
    host: str = wire(STRING)
    port: int = wire(UINT16)


@struct
class StreamsGroupMemberMetadataValue:
    instance_id: str | None = wire(STRING, nullable="0+", default=None)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    topology_epoch: int = wire(INT32)
    process_id: str = wire(STRING)
    user_endpoint: StreamsGroupEndpoint | None = wire(StreamsGroupEndpoint, nullable="0+", default=None)
    client_tags: list[StreamsGroupKeyValue] = wire([StreamsGroupKeyValue])


class StreamsGroupTargetAssignmentMetadataKey(GroupKey): ...


@struct
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire(INT32)
    assignment_timestamp: int = wire(INT64, tag=0, default=NO_TIMESTAMP)


class StreamsGroupTargetAssignmentMemberKey(MemberKey): ...


@struct
class StreamsGroupTaskIds:
    """Tasks of one subtopology, by partition."""

    subtopology_id: str = wire(STRING)
    partitions: list[int] = wire([INT32])


@struct
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: list[StreamsGroupTaskIds] = wire([StreamsGroupTaskIds])
    standby_tasks: list[StreamsGroupTaskIds] = wire([StreamsGroupTaskIds])
    warmup_tasks: list[StreamsGroupTaskIds] = wire([StreamsGroupTaskIds])


class StreamsGroupCurrentMemberAssignmentKey(MemberKey): ...


@struct
class StreamsGroupCurrentTaskIds:
    """Tasks of one subtopology that a member has."""

    subtopology_id: str = wire(STRING)
    partitions: list[int] = wire([INT32])
    assignment_epochs: list[int] | None = wire([INT32], nullable="0+", tag=0, default=None)
    """Since which epoch of the member it has each; of active tasks only."""


@struct
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire(INT32)
    previous_member_epoch: int = wire(INT32)
    state: int = wire(INT8)
    active_tasks: list[StreamsGroupCurrentTaskIds] = wire([StreamsGroupCurrentTaskIds])
    standby_tasks: list[StreamsGroupCurrentTaskIds] = wire([StreamsGroupCurrentTaskIds])
    warmup_tasks: list[StreamsGroupCurrentTaskIds] = wire([StreamsGroupCurrentTaskIds])
    active_tasks_pending_revocation: list[StreamsGroupCurrentTaskIds] = wire([StreamsGroupCurrentTaskIds])
    standby_tasks_pending_revocation: list[StreamsGroupCurrentTaskIds] = wire([StreamsGroupCurrentTaskIds])
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentTaskIds] = wire([StreamsGroupCurrentTaskIds])


class StreamsGroupTopologyKey(GroupKey): ...


@struct
class StreamsGroupTopicInfo:
    """An internal topic of the application."""

    name: str = wire(STRING)
    partitions: int = wire(INT32)
    """0: as its place in the topology says; always so for changelogs."""
    replication_factor: int = wire(INT16)
    """0: the server's."""
    topic_configs: list[StreamsGroupKeyValue] = wire([StreamsGroupKeyValue])


@struct
class StreamsGroupCopartitionGroup:
    """Topics that have to have equally many partitions, by their indexes in the lists of the subtopology."""

    source_topics: list[int] = wire([INT16])
    source_topic_regex: list[int] = wire([INT16])
    repartition_source_topics: list[int] = wire([INT16])


@struct
class StreamsGroupSubtopology:
    subtopology_id: str = wire(STRING)
    source_topics: list[str] = wire([STRING])
    source_topic_regex: list[str] = wire([STRING])
    state_changelog_topics: list[StreamsGroupTopicInfo] = wire([StreamsGroupTopicInfo])
    repartition_sink_topics: list[str] = wire([STRING])
    repartition_source_topics: list[StreamsGroupTopicInfo] = wire([StreamsGroupTopicInfo])
    copartition_groups: list[StreamsGroupCopartitionGroup] = wire([StreamsGroupCopartitionGroup])


@struct
class StreamsGroupTopologyValue:
    epoch: int = wire(INT32)
    subtopologies: list[StreamsGroupSubtopology] = wire([StreamsGroupSubtopology])


STREAMS_GROUP_RECORDS: Final = RecordKinds[Any, Any](
    {
        17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
        21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
        23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    }
)
