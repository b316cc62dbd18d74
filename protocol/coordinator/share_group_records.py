"""A share group in records of `__consumer_offsets` (KIP-932; Kafka: the classes ShareGroup*Key and ShareGroup*Value).

| key | version | fields | value says |
|---|---:|---|---|
| member metadata | 10 | group, member | who it is and what it subscribes to |
| metadata | 11 | group | group epoch; a hash of the subscribed topics |
| target assignment metadata | 12 | group | the epoch of the target assignment; when it was made since 4.3, tagged |
| target assignment member | 13 | group, member | what the member is to have |
| current member assignment | 14 | group, member | what the member has |
| state partition metadata | 15 | group | partitions whose share state is there, is being made, is being deleted |

How keys and values lie in bytes is in `record_kinds`. Where records are read, and how far, is the share state's matter.
"""

from __future__ import annotations

from typing import Final

from ..schema.fields import INT8, INT32, INT64, STRING, UUID, struct, wire
from .consumer_group_records import ConsumerGroupTopicPartitions
from .record_kinds import RecordKinds

NO_METADATA_HASH: Final = 0
NO_TIMESTAMP: Final = 0


@struct
class ShareGroupMemberMetadataKey:
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class ShareGroupMemberMetadataValue:
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: list[str] = wire([STRING])


@struct
class ShareGroupMetadataKey:
    group_id: str = wire(STRING)


@struct
class ShareGroupMetadataValue:
    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64)
    """Of the topics that the group is subscribed to. What it is of is for the writer to know: one that reads another's finds it
    changed, and makes a new assignment."""


@struct
class ShareGroupTargetAssignmentMetadataKey:
    group_id: str = wire(STRING)


@struct
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire(INT32)
    assignment_timestamp: int = wire(INT64, tag=0, default=NO_TIMESTAMP)


@struct
class ShareGroupTargetAssignmentMemberKey:
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[ConsumerGroupTopicPartitions] = wire([ConsumerGroupTopicPartitions])


@struct
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire(INT32)
    previous_member_epoch: int = wire(INT32)
    state: int = wire(INT8)
    assigned_partitions: list[ConsumerGroupTopicPartitions] = wire([ConsumerGroupTopicPartitions])


@struct
class ShareGroupStatePartitionMetadataKey:
    group_id: str = wire(STRING)


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


ShareGroupKey = (
    ShareGroupMemberMetadataKey
    | ShareGroupMetadataKey
    | ShareGroupTargetAssignmentMetadataKey
    | ShareGroupTargetAssignmentMemberKey
    | ShareGroupCurrentMemberAssignmentKey
    | ShareGroupStatePartitionMetadataKey
)
ShareGroupValue = (
    ShareGroupMemberMetadataValue
    | ShareGroupMetadataValue
    | ShareGroupTargetAssignmentMetadataValue
    | ShareGroupTargetAssignmentMemberValue
    | ShareGroupCurrentMemberAssignmentValue
    | ShareGroupStatePartitionMetadataValue
)
ShareGroupRecord = tuple[ShareGroupKey, ShareGroupValue | None]
"""A record of the log; None for a value that takes away."""

SHARE_GROUP_RECORDS: Final = RecordKinds[ShareGroupKey, ShareGroupValue](
    {
        10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
        12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    }
)
