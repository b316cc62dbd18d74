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
| tagged fields | varint | 4 |

Later key versions belong to Kafka's newer kinds of groups (KIP-848, KIP-932) and are left alone. Written are key version 1
and value version 3, as Kafka 4.1 does.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ..types import Bytes, TopicPartition
from .fields import FieldReader, check_version, encode_string, read_version

OFFSETS_TOPIC: Final = "__consumer_offsets"

NO_EXPIRE_TIMESTAMP: Final = -1

_KEY_VERSION: Final = 1
_GROUP_KEY_VERSION: Final = 2
_VALUE_VERSION: Final = 3
_HIGHEST_VALUE_VERSION: Final = 4
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
    """What a record of `__consumer_offsets` is about; None for kinds that are not known here. Raises InvalidRecordError."""
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

    def encode(self) -> bytes:
        """In version 1 where it has an expire timestamp, which later versions lack, else in version 3. ValueError for too long
        metadata."""
        if self.expire_timestamp != NO_EXPIRE_TIMESTAMP:
            metadata = encode_string(self.metadata)
            return _EXPIRING.pack(1, self.offset) + metadata + _TIMES.pack(self.commit_timestamp, self.expire_timestamp)
        start = _WRITTEN.pack(_VALUE_VERSION, self.offset, self.leader_epoch)
        return start + encode_string(self.metadata) + _OFFSET.pack(self.commit_timestamp)


def decode_offset_commit_value(data: Bytes) -> OffsetCommitValue:
    """Raises InvalidRecordError."""
    what = "an offset commit"
    version = check_version(what, data, _HIGHEST_VALUE_VERSION)
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
    reader.end()
    return OffsetCommitValue(offset, metadata, commit_timestamp, leader_epoch, expire_timestamp)
