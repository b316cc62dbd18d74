"""A group whose assignments the server makes, in records of `__consumer_offsets` (KIP-848; Kafka: the classes ConsumerGroup*Key
and ConsumerGroup*Value).

| key | version | fields | value says |
|---|---:|---|---|
| metadata | 3 | group | group epoch; a hash of the subscribed topics since 4.1, tagged |
| partition metadata | 4 | group | the subscribed topics; up to 4.0, never written here |
| member metadata | 5 | group, member | who it is and what it subscribes to |
| target assignment metadata | 6 | group | the epoch of the target assignment |
| target assignment member | 7 | group, member | what the member is to have |
| current member assignment | 8 | group, member | what the member has, and what it has to give up |
| regular expression | 16 | group, expression | the topics that it matched |

How keys and values lie in bytes is in `fields`.
"""

from __future__ import annotations

from typing import Any, Final

from ..schema.fields import BYTES, INT8, INT32, INT64, STRING, UUID, struct, wire
from .fields import GroupKey, MemberKey, RecordKinds

NO_METADATA_HASH: Final = 0
NO_REBALANCE_TIMEOUT: Final = -1


class ConsumerGroupMetadataKey(GroupKey): ...


@struct
class ConsumerGroupMetadataValue:
    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64, tag=0, default=NO_METADATA_HASH)
    """Of the topics that the group is subscribed to. What it is of is for the writer to know: one that reads another's finds it
    changed, and makes a new assignment."""


class ConsumerGroupPartitionMetadataKey(GroupKey): ...


@struct
class ConsumerGroupPartitionRacks:
    partition: int = wire(INT32)
    racks: list[str] = wire([STRING])


@struct
class ConsumerGroupTopicMetadata:
    topic_id: bytes = wire(UUID)
    topic_name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    partition_metadata: list[ConsumerGroupPartitionRacks] = wire([ConsumerGroupPartitionRacks])


@struct
class ConsumerGroupPartitionMetadataValue:
    topics: list[ConsumerGroupTopicMetadata] = wire([ConsumerGroupTopicMetadata])


class ConsumerGroupMemberMetadataKey(MemberKey): ...


@struct
class ConsumerGroupClassicProtocol:
    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@struct
class ConsumerGroupClassicMemberMetadata:
    session_timeout_ms: int = wire(INT32)
    supported_protocols: list[ConsumerGroupClassicProtocol] = wire([ConsumerGroupClassicProtocol])


@struct
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = wire(STRING, nullable="0+", default=None)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: list[str] = wire([STRING])
    subscribed_topic_regex: str | None = wire(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = wire(INT32, default=NO_REBALANCE_TIMEOUT)
    server_assignor: str | None = wire(STRING, nullable="0+", default=None)
    classic_member_metadata: ConsumerGroupClassicMemberMetadata | None = wire(
        ConsumerGroupClassicMemberMetadata, nullable="0+", tag=0, default=None
    )
    """Of a member that uses the classic protocol in a group of this kind."""


class ConsumerGroupTargetAssignmentMetadataKey(GroupKey): ...


@struct
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire(INT32)


class ConsumerGroupTargetAssignmentMemberKey(MemberKey): ...


@struct
class ConsumerGroupTopicPartitions:
    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire([INT32])


@struct
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[ConsumerGroupTopicPartitions] = wire([ConsumerGroupTopicPartitions])


class ConsumerGroupCurrentMemberAssignmentKey(MemberKey): ...


@struct
class ConsumerGroupCurrentPartitions:
    """Partitions of one topic that a member has."""

    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire([INT32])
    assignment_epochs: list[int] | None = wire([INT32], nullable="0+", tag=0, default=None)
    """Since which epoch of the member it has each (KIP-1251)."""


@struct
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire(INT32)
    previous_member_epoch: int = wire(INT32)
    state: int = wire(INT8)
    assigned_partitions: list[ConsumerGroupCurrentPartitions] = wire([ConsumerGroupCurrentPartitions])
    partitions_pending_revocation: list[ConsumerGroupCurrentPartitions] = wire([ConsumerGroupCurrentPartitions])


@struct
class ConsumerGroupRegularExpressionKey:
    group_id: str = wire(STRING)
    regular_expression: str = wire(STRING)


@struct
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = wire([STRING])
    version: int = wire(INT64)
    """Of the topics that it was matched against."""
    timestamp: int = wire(INT64)


CONSUMER_GROUP_RECORDS: Final = RecordKinds[Any, Any](
    {
        3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    }
)
