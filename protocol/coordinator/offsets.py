"""Records of `__consumer_offsets` (Kafka: OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupCoordinatorRecordSerde).

| key | version | fields | value |
|---|---|---|---|
| offset commit | 0, 1 | group, topic, partition (4 bytes) | offset commit value; null takes the offset back |
| group metadata | 2 | group | a group with members; null takes the group away |

| offset commit value | bytes | in versions |
|---|---:|---|
| offset | 8 | all |
| leader epoch, -1 for none | 4 | 3, 4 |
| metadata | string | all |
| commit timestamp, ms | 8 | all |
| expire timestamp, ms | 8 | 1 |
| tagged fields: topic id, tag 0 | 16 | 4 |

Later key versions belong to Kafka's newer kinds of groups (KIP-848, KIP-932) and are left alone. Kafka writes key version 1,
and value version 4 with the topic's id, or version 3 where that is unknown; so do we.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ..records.varint import encode_unsigned_varint
from ..schema.fields import INT32, INT64, STRING, UUID, wire
from ..schema.fields import struct as structure
from ..types import Bytes, TopicPartition
from .fields import VERSION, check_version, decode, encode_string, read_version

OFFSETS_TOPIC: Final = "__consumer_offsets"

NO_EXPIRE_TIMESTAMP: Final = -1
NO_TOPIC_ID: Final = bytes(16)

_KEY_VERSION: Final = 1
_GROUP_KEY_VERSION: Final = 2
_VALUE_VERSION: Final = 3
_VALUE_VERSION_WITH_ID: Final = 4
_TOPIC_ID_TAG: Final = 0
_TOPIC_ID_FOLLOWS: Final = bytes((1, _TOPIC_ID_TAG, len(NO_TOPIC_ID)))
"""One tagged field, its tag and its size."""
_PARTITION: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_WRITTEN: Final = struct.Struct(">hqi")
_EXPIRING: Final = struct.Struct(">hq")
_TIMES: Final = struct.Struct(">qq")


class OffsetCommitKey(NamedTuple):
    """A committed offset's place."""

    group: str
    topic_partition: TopicPartition

    def encode(self) -> bytes:
        """ValueError for a name that is too long."""
        topic, partition = self.topic_partition
        return VERSION.pack(_KEY_VERSION) + encode_string(self.group) + encode_string(topic) + _PARTITION.pack(partition)


class GroupMetadataKey(NamedTuple):
    """A group that has, or had, members."""

    group: str

    def encode(self) -> bytes:
        return VERSION.pack(_GROUP_KEY_VERSION) + encode_string(self.group)


@structure
class _GroupKey:
    group: str = wire(STRING)


@structure
class _CommitKey:
    group: str = wire(STRING)
    topic: str = wire(STRING)
    partition: int = wire(INT32)


@structure
class _Value:
    offset: int = wire(INT64)
    leader_epoch: int = wire(INT32, "3+", default=-1)
    metadata: str = wire(STRING)
    commit_timestamp: int = wire(INT64)
    expire_timestamp: int = wire(INT64, "1", default=NO_EXPIRE_TIMESTAMP)
    topic_id: bytes = wire(UUID, "4+", tag=_TOPIC_ID_TAG)


def decode_offsets_key(data: Bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """Decode the key of a record of `__consumer_offsets`; None for unknown kinds of keys. Raises InvalidRecordError."""
    what = "the key of a group's record"
    version = read_version(what, data)
    if version > _GROUP_KEY_VERSION:
        return None
    if version == _GROUP_KEY_VERSION:
        return GroupMetadataKey(decode(_GroupKey, what, data, 0).group)
    key = decode(_CommitKey, what, data, 0)
    return OffsetCommitKey(key.group, TopicPartition(key.topic, key.partition))


class OffsetCommitValue(NamedTuple):
    """A committed offset: of the record that the group reads next."""

    offset: int
    metadata: str
    commit_timestamp: int
    leader_epoch: int = -1
    expire_timestamp: int = NO_EXPIRE_TIMESTAMP
    """When the offset goes, as clients before Kafka 2.1 could ask for; -1: when the server says."""
    topic_id: bytes = NO_TOPIC_ID
    """Of the topic that it belongs to: another topic of that name has another id. 16 bytes."""

    def encode(self) -> bytes:
        """In version 1 where it has an expire timestamp, which later versions lack, in version 4 where it has a topic id, else
        in version 3. ValueError for too long metadata."""
        timestamp = _OFFSET.pack(self.commit_timestamp)
        if self.expire_timestamp != NO_EXPIRE_TIMESTAMP:
            metadata = encode_string(self.metadata)
            return _EXPIRING.pack(1, self.offset) + metadata + _TIMES.pack(self.commit_timestamp, self.expire_timestamp)
        if self.topic_id == NO_TOPIC_ID:
            start = _WRITTEN.pack(_VALUE_VERSION, self.offset, self.leader_epoch)
            return start + encode_string(self.metadata) + timestamp
        metadata = encode_string(self.metadata)[2:]
        start = _WRITTEN.pack(_VALUE_VERSION_WITH_ID, self.offset, self.leader_epoch)
        return start + encode_unsigned_varint(len(metadata) + 1) + metadata + timestamp + _TOPIC_ID_FOLLOWS + self.topic_id


def decode_offset_commit_value(data: Bytes) -> OffsetCommitValue:
    """Raises InvalidRecordError."""
    what = "an offset commit"
    version = check_version(what, data, _VALUE_VERSION_WITH_ID)
    value = decode(_Value, what, data, version, flexible=version >= _VALUE_VERSION_WITH_ID)
    return OffsetCommitValue(
        value.offset, value.metadata, value.commit_timestamp, value.leader_epoch, value.expire_timestamp, value.topic_id
    )
