"""Groups of Kafka Streams applications and their members (KIP-1071): StreamsGroupHeartbeat (88), StreamsGroupDescribe (89)."""

from __future__ import annotations

from ...limits import INT32_MIN
from ...schema.fields import BOOL, INT8, INT16, INT32, INT64, STRING, UINT16, struct, wire
from ..apis import GROUP_ID, TOPIC_NAME
from .responses import Response, ResponseWithMessage


@struct
class StreamsGroupKeyValue:
    key: str = wire(STRING)
    value: str = wire(STRING)


@struct
class StreamsGroupEndpoint:
    host: str = wire(STRING)
    port: int = wire(UINT16)


@struct
class StreamsGroupTaskIds:
    """Tasks of one part of a topology, by the partitions that they read."""

    subtopology_id: str = wire(STRING)
    partitions: list[int] = wire([INT32])


@struct
class StreamsGroupTaskOffset:
    subtopology_id: str = wire(STRING)
    partition: int = wire(INT32)
    offset: int = wire(INT64)


@struct
class StreamsGroupTopicInfo:
    """An internal topic: a changelog, or one to partition anew."""

    name: str = wire(TOPIC_NAME)
    partitions: int = wire(INT32)
    """0: as its place in the topology says."""
    replication_factor: int = wire(INT16)
    """0: the server's."""
    topic_configs: list[StreamsGroupKeyValue] = wire([StreamsGroupKeyValue])


@struct
class StreamsGroupCopartitionGroup:
    """Topics that need the same number of partitions, each by its index in the subtopology's lists."""

    source_topics: list[int] = wire([INT16])
    source_topic_regex: list[int] = wire([INT16])
    repartition_source_topics: list[int] = wire([INT16])


@struct
class StreamsGroupHeartbeatSubtopology:
    subtopology_id: str = wire(STRING)
    source_topics: list[str] = wire([TOPIC_NAME])
    source_topic_regex: list[str] = wire([STRING])
    state_changelog_topics: list[StreamsGroupTopicInfo] = wire([StreamsGroupTopicInfo])
    repartition_sink_topics: list[str] = wire([TOPIC_NAME])
    repartition_source_topics: list[StreamsGroupTopicInfo] = wire([StreamsGroupTopicInfo])
    copartition_groups: list[StreamsGroupCopartitionGroup] = wire([StreamsGroupCopartitionGroup])


@struct
class StreamsGroupHeartbeatTopology:
    epoch: int = wire(INT32)
    subtopologies: list[StreamsGroupHeartbeatSubtopology] = wire([StreamsGroupHeartbeatSubtopology])


@struct
class StreamsGroupHeartbeatRequest:
    group_id: str = wire(GROUP_ID)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    endpoint_information_epoch: int = wire(INT32)
    instance_id: str | None = wire(STRING, nullable="0+", default=None)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    topology: StreamsGroupHeartbeatTopology | None = wire(StreamsGroupHeartbeatTopology, nullable="0+", default=None)
    active_tasks: list[StreamsGroupTaskIds] | None = wire([StreamsGroupTaskIds], nullable="0+", default=None)
    standby_tasks: list[StreamsGroupTaskIds] | None = wire([StreamsGroupTaskIds], nullable="0+", default=None)
    warmup_tasks: list[StreamsGroupTaskIds] | None = wire([StreamsGroupTaskIds], nullable="0+", default=None)
    process_id: str | None = wire(STRING, nullable="0+", default=None)
    user_endpoint: StreamsGroupEndpoint | None = wire(StreamsGroupEndpoint, nullable="0+", default=None)
    client_tags: list[StreamsGroupKeyValue] | None = wire([StreamsGroupKeyValue], nullable="0+", default=None)
    task_offsets: list[StreamsGroupTaskOffset] | None = wire([StreamsGroupTaskOffset], nullable="0+", default=None)
    task_end_offsets: list[StreamsGroupTaskOffset] | None = wire([StreamsGroupTaskOffset], nullable="0+", default=None)
    shutdown_application: bool = wire(BOOL, default=False)


@struct
class StreamsGroupStatus:
    status_code: int = wire(INT8)
    status_detail: str = wire(STRING)


@struct
class StreamsGroupTopicPartitions:
    topic: str = wire(TOPIC_NAME)
    partitions: list[int] = wire([INT32])


@struct
class StreamsGroupEndpointToPartitions:
    user_endpoint: StreamsGroupEndpoint = wire(StreamsGroupEndpoint)
    active_partitions: list[StreamsGroupTopicPartitions] = wire([StreamsGroupTopicPartitions])
    standby_partitions: list[StreamsGroupTopicPartitions] = wire([StreamsGroupTopicPartitions])


@struct
class StreamsGroupHeartbeatResponse(ResponseWithMessage):
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)
    acceptable_recovery_lag: int = wire(INT32)
    task_offset_interval_ms: int = wire(INT32)
    status: list[StreamsGroupStatus] | None = wire([StreamsGroupStatus], nullable="0+")
    active_tasks: list[StreamsGroupTaskIds] | None = wire([StreamsGroupTaskIds], nullable="0+", default=None)
    standby_tasks: list[StreamsGroupTaskIds] | None = wire([StreamsGroupTaskIds], nullable="0+", default=None)
    warmup_tasks: list[StreamsGroupTaskIds] | None = wire([StreamsGroupTaskIds], nullable="0+", default=None)
    endpoint_information_epoch: int = wire(INT32)
    partitions_by_user_endpoint: list[StreamsGroupEndpointToPartitions] | None = wire(
        [StreamsGroupEndpointToPartitions], nullable="0+", default=None
    )


@struct
class StreamsGroupDescribeRequest:
    group_ids: list[str] = wire([GROUP_ID])
    include_authorized_operations: bool = wire(BOOL)


@struct
class StreamsGroupDescribeSubtopology:
    subtopology_id: str = wire(STRING)
    source_topics: list[str] = wire([TOPIC_NAME])
    repartition_sink_topics: list[str] = wire([TOPIC_NAME])
    state_changelog_topics: list[StreamsGroupTopicInfo] = wire([StreamsGroupTopicInfo])
    repartition_source_topics: list[StreamsGroupTopicInfo] = wire([StreamsGroupTopicInfo])


@struct
class StreamsGroupDescribeTopology:
    epoch: int = wire(INT32)
    subtopologies: list[StreamsGroupDescribeSubtopology] | None = wire(
        [StreamsGroupDescribeSubtopology], nullable="0+", default=None
    )


@struct
class StreamsGroupDescribeAssignment:
    active_tasks: list[StreamsGroupTaskIds] = wire([StreamsGroupTaskIds])
    standby_tasks: list[StreamsGroupTaskIds] = wire([StreamsGroupTaskIds])
    warmup_tasks: list[StreamsGroupTaskIds] = wire([StreamsGroupTaskIds])


@struct
class StreamsGroupDescribeMember:
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    instance_id: str | None = wire(STRING, nullable="0+", default=None)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    topology_epoch: int = wire(INT32)
    process_id: str = wire(STRING)
    user_endpoint: StreamsGroupEndpoint | None = wire(StreamsGroupEndpoint, nullable="0+", default=None)
    client_tags: list[StreamsGroupKeyValue] = wire([StreamsGroupKeyValue])
    task_offsets: list[StreamsGroupTaskOffset] = wire([StreamsGroupTaskOffset])
    task_end_offsets: list[StreamsGroupTaskOffset] = wire([StreamsGroupTaskOffset])
    assignment: StreamsGroupDescribeAssignment = wire(StreamsGroupDescribeAssignment)
    target_assignment: StreamsGroupDescribeAssignment = wire(StreamsGroupDescribeAssignment)
    is_classic: bool = wire(BOOL)


@struct
class StreamsGroupDescribedGroup:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    group_id: str = wire(GROUP_ID)
    group_state: str = wire(STRING)
    group_epoch: int = wire(INT32)
    assignment_epoch: int = wire(INT32)
    topology: StreamsGroupDescribeTopology | None = wire(StreamsGroupDescribeTopology, nullable="0+", default=None)
    members: list[StreamsGroupDescribeMember] = wire([StreamsGroupDescribeMember])
    authorized_operations: int = wire(INT32, default=INT32_MIN)


@struct
class StreamsGroupDescribeResponse(Response):
    groups: list[StreamsGroupDescribedGroup] = wire([StreamsGroupDescribedGroup])
