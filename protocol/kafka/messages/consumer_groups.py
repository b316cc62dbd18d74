"""Consumer groups (KIP-848): ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69).

Heartbeat: v1 regular expressions, and the client makes the member id (KIP-1082). Describe: v1 the kind of each member
(KIP-1099).
"""

from __future__ import annotations

from ...limits import INT32_MIN
from ...schema.fields import BOOL, INT8, INT16, INT32, STRING, struct, wire
from ..apis import GROUP_ID, PARTITION, TOPIC_ID, TOPIC_NAME


@struct
class ConsumerGroupHeartbeatTopicPartitions:
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[int] = wire([PARTITION])


@struct
class ConsumerGroupHeartbeatRequest:
    group_id: str = wire(GROUP_ID)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    instance_id: str | None = wire(STRING, nullable="0+", default=None)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    subscribed_topic_names: list[str] | None = wire([TOPIC_NAME], nullable="0+", default=None)
    subscribed_topic_regex: str | None = wire(STRING, "1+", nullable="1+", default=None)
    server_assignor: str | None = wire(STRING, nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = wire(
        [ConsumerGroupHeartbeatTopicPartitions], nullable="0+", default=None
    )


@struct
class ConsumerGroupHeartbeatAssignment:
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = wire([ConsumerGroupHeartbeatTopicPartitions])


@struct
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    member_id: str | None = wire(STRING, nullable="0+", default=None)
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)
    assignment: ConsumerGroupHeartbeatAssignment | None = wire(ConsumerGroupHeartbeatAssignment, nullable="0+", default=None)


@struct
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = wire([GROUP_ID])
    include_authorized_operations: bool = wire(BOOL)


@struct
class ConsumerGroupDescribeTopicPartitions:
    topic_id: bytes = wire(TOPIC_ID)
    topic_name: str = wire(TOPIC_NAME)
    partitions: list[int] = wire([PARTITION])


@struct
class ConsumerGroupDescribeAssignment:
    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = wire([ConsumerGroupDescribeTopicPartitions])


@struct
class ConsumerGroupDescribeMember:
    member_id: str = wire(STRING)
    instance_id: str | None = wire(STRING, nullable="0+", default=None)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    member_epoch: int = wire(INT32)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: list[str] = wire([TOPIC_NAME])
    subscribed_topic_regex: str | None = wire(STRING, nullable="0+", default=None)
    assignment: ConsumerGroupDescribeAssignment = wire(ConsumerGroupDescribeAssignment)
    target_assignment: ConsumerGroupDescribeAssignment = wire(ConsumerGroupDescribeAssignment)
    member_type: int = wire(INT8, "1+", default=-1)


@struct
class ConsumerGroupDescribedGroup:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    group_id: str = wire(GROUP_ID)
    group_state: str = wire(STRING)
    group_epoch: int = wire(INT32)
    assignment_epoch: int = wire(INT32)
    assignor_name: str = wire(STRING)
    members: list[ConsumerGroupDescribeMember] = wire([ConsumerGroupDescribeMember])
    authorized_operations: int = wire(INT32, default=INT32_MIN)


@struct
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    groups: list[ConsumerGroupDescribedGroup] = wire([ConsumerGroupDescribedGroup])
