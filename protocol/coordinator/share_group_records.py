"""A share group in records of `__consumer_offsets` (KIP-932; Kafka: the classes ShareGroup*Key and ShareGroup*Value).

| key | version | fields | value says |
|---|---:|---|---|
| member metadata | 10 | group, member | who it is and what it subscribes to |
| metadata | 11 | group | group epoch; a hash of the subscribed topics |
| target assignment metadata | 12 | group | the epoch of the target assignment; when it was made since 4.3, tagged |
| target assignment member | 13 | group, member | what the member is to have |
| current member assignment | 14 | group, member | what the member has |
| state partition metadata | 15 | group | partitions whose share state is there, is being made, is being deleted |

How keys and values lie in bytes is in `fields`. Where records are read, and how far, is the share state's matter.

Records of `__share_group_state`: what has become of the records that a share group was given (KIP-932; Kafka: the classes
ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey and ShareUpdateValue, ShareCoordinatorRecordSerde).

| key | version | fields | value says |
|---|---:|---|---|
| snapshot | 0 | group, topic id, partition | everything of the share-partition; null takes it away |
| update | 1 | the same | what has changed since the snapshot of that epoch |

A value is version 0, which is flexible (KIP-482). A state batch is a range of offsets, both ends included, with its delivery
state (0 available, 2 acknowledged, 4 archived) and how often it was delivered. The topic is never compacted: an update counts
beside those before it. A record that cannot be read raises InvalidRecordError.
"""

from __future__ import annotations

from typing import Any, Final

from ..schema.fields import INT8, INT16, INT32, INT64, STRING, UUID, struct, wire
from .consumer_group_records import ConsumerGroupTopicPartitions
from .fields import GroupKey, MemberKey, RecordKinds

NO_METADATA_HASH: Final = 0
NO_TIMESTAMP: Final = 0


class ShareGroupMemberMetadataKey(MemberKey): ...


@struct
class ShareGroupMemberMetadataValue:
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: list[str] = wire([STRING])


class ShareGroupMetadataKey(GroupKey): ...


@struct
class ShareGroupMetadataValue:
    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64)
    """Of the topics that the group is subscribed to. What it is of is for the writer to know: one that reads another's finds it
    changed, and makes a new assignment."""


class ShareGroupTargetAssignmentMetadataKey(GroupKey): ...


@struct
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire(INT32)
    assignment_timestamp: int = wire(INT64, tag=0, default=NO_TIMESTAMP)


class ShareGroupTargetAssignmentMemberKey(MemberKey): ...


@struct
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[ConsumerGroupTopicPartitions] = wire([ConsumerGroupTopicPartitions])


class ShareGroupCurrentMemberAssignmentKey(MemberKey): ...


@struct
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire(INT32)
    previous_member_epoch: int = wire(INT32)
    state: int = wire(INT8)
    assigned_partitions: list[ConsumerGroupTopicPartitions] = wire([ConsumerGroupTopicPartitions])


class ShareGroupStatePartitionMetadataKey(GroupKey): ...


@struct
class ShareGroupTopicPartitionsInfo:
    topic_id: bytes = wire(UUID)
    topic_name: str = wire(STRING)
    partitions: list[int] = wire([INT32])


@struct
class ShareGroupTopicInfo:
    topic_id: bytes = wire(UUID)
    topic_name: str = wire(STRING)


@struct
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: list[ShareGroupTopicPartitionsInfo] = wire([ShareGroupTopicPartitionsInfo])
    initialized_topics: list[ShareGroupTopicPartitionsInfo] = wire([ShareGroupTopicPartitionsInfo])
    deleting_topics: list[ShareGroupTopicInfo] = wire([ShareGroupTopicInfo])


SHARE_GROUP_RECORDS: Final = RecordKinds[Any, Any](
    {
        10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
        12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    }
)


SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
NO_START_OFFSET: Final = -1
"""Of a snapshot: nobody has looked yet where the group begins. Of an update: it has not changed."""
UNKNOWN_DELIVERY_COMPLETE_COUNT: Final = -1


@struct
class ShareSnapshotKey:
    group_id: str = wire(STRING)
    topic_id: bytes = wire(UUID)
    partition: int = wire(INT32)


@struct
class ShareUpdateKey:
    group_id: str = wire(STRING)
    topic_id: bytes = wire(UUID)
    partition: int = wire(INT32)


@struct
class ShareStateBatch:
    first_offset: int = wire(INT64)
    last_offset: int = wire(INT64)
    delivery_state: int = wire(INT8)
    delivery_count: int = wire(INT16)


@struct
class ShareSnapshotValue:
    snapshot_epoch: int = wire(INT32)
    state_epoch: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    start_offset: int = wire(INT64)
    delivery_complete_count: int = wire(INT32, tag=0, default=UNKNOWN_DELIVERY_COMPLETE_COUNT)
    create_timestamp: int = wire(INT64)
    write_timestamp: int = wire(INT64)
    state_batches: list[ShareStateBatch] = wire([ShareStateBatch])


@struct
class ShareUpdateValue:
    snapshot_epoch: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    start_offset: int = wire(INT64)
    delivery_complete_count: int = wire(INT32, tag=0, default=UNKNOWN_DELIVERY_COMPLETE_COUNT)
    state_batches: list[ShareStateBatch] = wire([ShareStateBatch])


ShareStateKey = ShareSnapshotKey | ShareUpdateKey
ShareStateValue = ShareSnapshotValue | ShareUpdateValue

SHARE_STATE_RECORDS: Final = RecordKinds[ShareStateKey, ShareStateValue](
    {0: (ShareSnapshotKey, ShareSnapshotValue), 1: (ShareUpdateKey, ShareUpdateValue)}
)
