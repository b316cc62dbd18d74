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

A key is its version and strings with two bytes of length; a value is version 0, which is flexible (KIP-482); null takes away
what the key names. A record that cannot be read raises InvalidRecordError.
"""

from __future__ import annotations

import struct as structs
from typing import Final, TypeVar

from ..errors import InvalidRecordError, RemoteProtocolError
from ..schema.codec import read, write
from ..schema.fields import BYTES, INT8, INT32, INT64, STRING, UUID, struct, wire
from ..types import Bytes
from .fields import check_version, read_version

T = TypeVar("T")

HIGHEST_VALUE_VERSION: Final = 0
NO_METADATA_HASH: Final = 0
NO_REBALANCE_TIMEOUT: Final = -1

_VERSION: Final = structs.Struct(">h")


@struct
class ConsumerGroupMetadataKey:
    group_id: str = wire(STRING)


@struct
class ConsumerGroupMetadataValue:
    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64, tag=0, default=NO_METADATA_HASH)
    """Of the topics that the group is subscribed to. What it is of is for the writer to know: one that reads another's finds it
    changed, and makes a new assignment."""


@struct
class ConsumerGroupPartitionMetadataKey:
    group_id: str = wire(STRING)


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


@struct
class ConsumerGroupMemberMetadataKey:
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


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
    """Of a member that speaks the classic protocol in a group of this kind. Such members are not made here."""


@struct
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = wire(STRING)


@struct
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire(INT32)


@struct
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class ConsumerGroupTopicPartitions:
    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire([INT32])


@struct
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[ConsumerGroupTopicPartitions] = wire([ConsumerGroupTopicPartitions])


@struct
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire(INT32)
    previous_member_epoch: int = wire(INT32)
    state: int = wire(INT8)
    assigned_partitions: list[ConsumerGroupTopicPartitions] = wire([ConsumerGroupTopicPartitions])
    partitions_pending_revocation: list[ConsumerGroupTopicPartitions] = wire([ConsumerGroupTopicPartitions])


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


ConsumerGroupKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
ConsumerGroupValue = (
    ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)
ConsumerGroupRecord = tuple[ConsumerGroupKey, ConsumerGroupValue | None]
"""A record of the log; None for a value that takes away."""

_KINDS: Final[dict[int, tuple[type[ConsumerGroupKey], type[ConsumerGroupValue]]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
_KEY_VERSIONS: Final = {key: version for version, (key, _) in _KINDS.items()}
_VALUES: Final = dict(_KINDS.values())


def encode_consumer_group_key(key: ConsumerGroupKey) -> bytes:
    """struct.error for a text above 32,767 bytes."""
    version = _KEY_VERSIONS[type(key)]
    return _VERSION.pack(version) + b"".join(write(key, 0, flexible=False))


def decode_consumer_group_key(data: Bytes) -> ConsumerGroupKey | None:
    """None for kinds of records that are not declared here."""
    kind = _KINDS.get(read_version("the key of a group's record", data))
    return None if kind is None else _read(kind[0], data, flexible=False)


def encode_consumer_group_value(value: ConsumerGroupValue) -> bytes:
    return _VERSION.pack(HIGHEST_VALUE_VERSION) + b"".join(write(value, HIGHEST_VALUE_VERSION, flexible=True))


def decode_consumer_group_value(key: ConsumerGroupKey, data: Bytes) -> ConsumerGroupValue:
    """What a key's record says."""
    cls = _VALUES[type(key)]
    check_version(cls.__name__, data, HIGHEST_VALUE_VERSION)
    return _read(cls, data, flexible=True)


def _read(cls: type[T], data: Bytes, *, flexible: bool) -> T:
    view = memoryview(data)
    try:
        value, stop = read(cls, 0, view, _VERSION.size, flexible=flexible)
    except RemoteProtocolError as exc:
        raise InvalidRecordError(f"{cls.__name__}: {exc}") from exc
    if stop != len(view):
        raise InvalidRecordError(f"{cls.__name__} has {len(view)} bytes and ends at position {stop}")
    return value
