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

from ..errors import InvalidRecordError
from ..records.varint import encode_unsigned_varint
from ..types import Bytes, TopicPartition
from .fields import FieldReader, check_version, encode_string, read_version

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
_VERSION: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_OFFSET_AND_EPOCH: Final = struct.Struct(">qi")
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
        return _VERSION.pack(_KEY_VERSION) + encode_string(self.group) + encode_string(topic) + _PARTITION.pack(partition)


class GroupMetadataKey(NamedTuple):
    """A group that has, or had, members."""

    group: str

    def encode(self) -> bytes:
        return _VERSION.pack(_GROUP_KEY_VERSION) + encode_string(self.group)


def decode_offsets_key(data: Bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """Decode the key of a record of `__consumer_offsets`; None for unknown kinds of keys. Raises InvalidRecordError."""
    version = read_version("the key of a group's record", data)
    if version > _GROUP_KEY_VERSION:
        return None
    reader = FieldReader("the key of a group's record", data, position=_VERSION.size)
    group = reader.string()
    key: OffsetCommitKey | GroupMetadataKey = GroupMetadataKey(group)
    if version != _GROUP_KEY_VERSION:
        topic = reader.string()
        (partition,) = reader.numbers(_PARTITION)
        key = OffsetCommitKey(group, TopicPartition(topic, partition))
    reader.end()
    return key


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
    reader = FieldReader(what, data, flexible=version >= 4, position=_VERSION.size)
    leader_epoch = expire_timestamp = -1
    if version >= 3:
        offset, leader_epoch = reader.numbers(_OFFSET_AND_EPOCH)
    else:
        (offset,) = reader.numbers(_OFFSET)
    metadata = reader.string()
    (commit_timestamp,) = reader.numbers(_OFFSET)
    if version == 1:
        (expire_timestamp,) = reader.numbers(_OFFSET)
    topic_id = reader.end().get(_TOPIC_ID_TAG, NO_TOPIC_ID)
    if len(topic_id) != len(NO_TOPIC_ID):
        raise InvalidRecordError(f"{what} has a topic id of {len(topic_id)} bytes, not {len(NO_TOPIC_ID)}")
    return OffsetCommitValue(offset, metadata, commit_timestamp, leader_epoch, expire_timestamp, topic_id)
