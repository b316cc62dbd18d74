"""FindCoordinator (10); classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups, DeleteGroups
(11 to 16, 42); consumer groups (KIP-848): ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69).

FindCoordinator: v1 key types, 0 groups and 1 transactional ids; v4 several keys at once (KIP-699); v6 share groups (KIP-932).

JoinGroup: v1 rebalance timeout; v4 the member id is returned first (KIP-394); v5 static members (KIP-345); v7 protocol type
(KIP-559); v8 a reason (KIP-800); v9 a leader that need not assign (KIP-814). LeaveGroup: v3 several members. ListGroups: v4 by
state (KIP-518), v5 by type (KIP-848). DescribeGroups: v6 an error for unknown groups. DeleteGroups: v3 error messages.

ConsumerGroupHeartbeat: v1 regular expressions, and the client makes the member id (KIP-1082). ConsumerGroupDescribe: v1 the
kind of each member (KIP-1099).
"""

from __future__ import annotations

from ...limits import INT32_MIN
from ...schema.fields import BOOL, BYTES, INT8, INT16, INT32, STRING, struct, wire
from ..apis import COORDINATOR_KEY, GROUP_ID, PARTITION, TOPIC_ID, TOPIC_NAME
from .responses import Response, ResponseWithMessage


@struct
class JoinGroupRequestProtocol:
    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@struct
class JoinGroupRequest:
    group_id: str = wire(GROUP_ID)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, "1+", default=-1)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "5+", nullable="5+", default=None)
    protocol_type: str = wire(STRING)
    protocols: list[JoinGroupRequestProtocol] = wire([JoinGroupRequestProtocol])
    reason: str | None = wire(STRING, "8+", nullable="8+", default=None)


@struct
class JoinGroupResponseMember:
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "5+", nullable="5+", default=None)
    metadata: bytes = wire(BYTES)


@struct
class JoinGroupResponse:
    throttle_time_ms: int = wire(INT32, "2+", default=0)
    error_code: int = wire(INT16, default=0)
    generation_id: int = wire(INT32, default=-1)
    protocol_type: str | None = wire(STRING, "7+", nullable="7+", default=None)
    protocol_name: str | None = wire(STRING, nullable="7+")
    leader: str = wire(STRING)
    skip_assignment: bool = wire(BOOL, "9+")
    member_id: str = wire(STRING)
    members: list[JoinGroupResponseMember] = wire([JoinGroupResponseMember])


@struct
class SyncGroupRequestAssignment:
    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)


@struct
class SyncGroupRequest:
    group_id: str = wire(GROUP_ID)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    protocol_type: str | None = wire(STRING, "5+", nullable="5+", default=None)
    protocol_name: str | None = wire(STRING, "5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = wire([SyncGroupRequestAssignment])


@struct
class SyncGroupResponse:
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    error_code: int = wire(INT16, default=0)
    protocol_type: str | None = wire(STRING, "5+", nullable="5+", default=None)
    protocol_name: str | None = wire(STRING, "5+", nullable="5+", default=None)
    assignment: bytes = wire(BYTES)


@struct
class HeartbeatRequest:
    group_id: str = wire(GROUP_ID)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)


@struct
class HeartbeatResponse:
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    error_code: int = wire(INT16, default=0)


@struct
class LeaveGroupMemberIdentity:
    member_id: str = wire(STRING, "3+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    reason: str | None = wire(STRING, "5+", nullable="5+", default=None)


@struct
class LeaveGroupRequest:
    group_id: str = wire(GROUP_ID)
    member_id: str = wire(STRING, "0-2")
    members: list[LeaveGroupMemberIdentity] = wire([LeaveGroupMemberIdentity], "3+")


@struct
class LeaveGroupMemberResponse:
    member_id: str = wire(STRING, "3+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+")
    error_code: int = wire(INT16, "3+", default=0)


@struct
class LeaveGroupResponse:
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    error_code: int = wire(INT16, default=0)
    members: list[LeaveGroupMemberResponse] = wire([LeaveGroupMemberResponse], "3+")


@struct
class DescribeGroupsRequest:
    groups: list[str] = wire([GROUP_ID])
    include_authorized_operations: bool = wire(BOOL, "3+")


@struct
class DescribeGroupsDescribedGroupMember:
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "4+", nullable="4+", default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    member_metadata: bytes = wire(BYTES)
    member_assignment: bytes = wire(BYTES)


@struct
class DescribeGroupsDescribedGroup:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, "6+", nullable="6+", default=None)
    group_id: str = wire(GROUP_ID)
    group_state: str = wire(STRING)
    protocol_type: str = wire(STRING)
    protocol_data: str = wire(STRING)
    members: list[DescribeGroupsDescribedGroupMember] = wire([DescribeGroupsDescribedGroupMember])
    authorized_operations: int = wire(INT32, "3+", default=INT32_MIN)


@struct
class DescribeGroupsResponse:
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    groups: list[DescribeGroupsDescribedGroup] = wire([DescribeGroupsDescribedGroup])


@struct
class ListGroupsRequest:
    states_filter: list[str] = wire([STRING], "4+")
    types_filter: list[str] = wire([STRING], "5+")


@struct
class ListGroupsListedGroup:
    group_id: str = wire(GROUP_ID)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, "4+")
    group_type: str = wire(STRING, "5+")


@struct
class ListGroupsResponse:
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    error_code: int = wire(INT16, default=0)
    groups: list[ListGroupsListedGroup] = wire([ListGroupsListedGroup])


@struct
class DeleteGroupsRequest:
    groups_names: list[str] = wire([GROUP_ID])


@struct
class DeleteGroupsDeletableGroupResult:
    group_id: str = wire(GROUP_ID)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, "3+", nullable="3+", default=None)


@struct
class DeleteGroupsResponse(Response):
    results: list[DeleteGroupsDeletableGroupResult] = wire([DeleteGroupsDeletableGroupResult])


@struct
class FindCoordinatorRequest:
    key: str = wire(COORDINATOR_KEY, "0-3")
    key_type: int = wire(INT8, "1+")
    coordinator_keys: list[str] = wire([COORDINATOR_KEY], "4+")


@struct
class FindCoordinatorCoordinator:
    key: str = wire(COORDINATOR_KEY, "4+")
    node_id: int = wire(INT32, "4+")
    host: str = wire(STRING, "4+")
    port: int = wire(INT32, "4+")
    error_code: int = wire(INT16, "4+", default=0)
    error_message: str | None = wire(STRING, "4+", nullable="4+")


@struct
class FindCoordinatorResponse:
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    error_code: int = wire(INT16, "0-3", default=0)
    error_message: str | None = wire(STRING, "1-3", nullable="1-3")
    node_id: int = wire(INT32, "0-3")
    host: str = wire(STRING, "0-3")
    port: int = wire(INT32, "0-3")
    coordinators: list[FindCoordinatorCoordinator] = wire([FindCoordinatorCoordinator], "4+")


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
class ConsumerGroupHeartbeatResponse(ResponseWithMessage):
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
class ConsumerGroupDescribeResponse(Response):
    groups: list[ConsumerGroupDescribedGroup] = wire([ConsumerGroupDescribedGroup])
