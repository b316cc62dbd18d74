"""Share groups and their members (KIP-932): ShareGroupHeartbeat (76), ShareGroupDescribe (77). Version 0 was a preview of Kafka
4.0 that no later broker speaks.
"""

from __future__ import annotations

from ...limits import INT32_MIN
from ...schema.fields import BOOL, INT16, INT32, STRING, struct, wire
from ..apis import GROUP_ID, PARTITION, TOPIC_ID, TOPIC_NAME


@struct
class ShareGroupHeartbeatRequest:
    group_id: str = wire(GROUP_ID)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = wire([TOPIC_NAME], nullable="0+", default=None)


@struct
class ShareGroupHeartbeatTopicPartitions:
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[int] = wire([PARTITION])


@struct
class ShareGroupHeartbeatAssignment:
    topic_partitions: list[ShareGroupHeartbeatTopicPartitions] = wire([ShareGroupHeartbeatTopicPartitions])


@struct
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    member_id: str | None = wire(STRING, nullable="0+", default=None)
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)
    assignment: ShareGroupHeartbeatAssignment | None = wire(ShareGroupHeartbeatAssignment, nullable="0+", default=None)


@struct
class ShareGroupDescribeRequest:
    group_ids: list[str] = wire([GROUP_ID])
    include_authorized_operations: bool = wire(BOOL)


@struct
class ShareGroupDescribeTopicPartitions:
    topic_id: bytes = wire(TOPIC_ID)
    topic_name: str = wire(TOPIC_NAME)
    partitions: list[int] = wire([PARTITION])


@struct
class ShareGroupDescribeAssignment:
    topic_partitions: list[ShareGroupDescribeTopicPartitions] = wire([ShareGroupDescribeTopicPartitions])


@struct
class ShareGroupDescribeMember:
    member_id: str = wire(STRING)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    member_epoch: int = wire(INT32)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: list[str] = wire([TOPIC_NAME])
    assignment: ShareGroupDescribeAssignment = wire(ShareGroupDescribeAssignment)


@struct
class ShareGroupDescribedGroup:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    group_id: str = wire(GROUP_ID)
    group_state: str = wire(STRING)
    group_epoch: int = wire(INT32)
    assignment_epoch: int = wire(INT32)
    assignor_name: str = wire(STRING)
    members: list[ShareGroupDescribeMember] = wire([ShareGroupDescribeMember])
    authorized_operations: int = wire(INT32, default=INT32_MIN)


@struct
class ShareGroupDescribeResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    groups: list[ShareGroupDescribedGroup] = wire([ShareGroupDescribedGroup])
