"""A classic group in a record of `__consumer_offsets` (Kafka: GroupMetadataValue; its key is `offsets.GroupMetadataKey`).

| field | type | in versions |
|---|---|---|
| protocol type | string | all |
| generation | 4 bytes | all |
| protocol | string, null for none | all |
| leader | string, null for none | all |
| current state timestamp, ms | 8 bytes | 2 on |
| members | array | all |

| field of a member | type | in versions |
|---|---|---|
| member id | string | all |
| group instance id | string, null for none | 3 on |
| client id, client host | strings | all |
| rebalance timeout, ms | 4 bytes | 1 on |
| session timeout, ms | 4 bytes | all |
| subscription, assignment | bytes, whose meaning is the clients' (see below) | all |

Version 4 is flexible (KIP-482). Written is version 3, as Kafka 4.1 does.

What consumers tell each other through a classic group: their subscriptions, and the assignment that the leader made (Kafka:
ConsumerProtocol, ConsumerProtocolSubscription, ConsumerProtocolAssignment; KIP-429, KIP-792, KIP-881).

| subscription | in versions | assignment | in versions |
|---|---|---|---|
| topics | all | partitions by topic | all |
| user data, null for none | all | user data, null for none | all |
| owned partitions by topic | 1 on | | |
| generation of what is owned | 2 on | | |
| rack, null for none | 3 on | | |

Two bytes of version stand before. A later version begins with the fields of those before it, so it is read as the highest one
that is known here, and bytes behind the last field are passed over. The server carries these bytes without looking at them. It
reads them only to report the topics of a group, and to convert a group of one protocol to the other.
"""

from __future__ import annotations

from typing import Final, TypeVar

from ..errors import RemoteProtocolError
from ..schema.codec import read
from ..schema.fields import BYTES, INT32, INT64, STRING, struct, wire
from ..types import Bytes
from .fields import VERSION, check_version, decode, encode

NO_TIMESTAMP: Final = -1
NO_TIMEOUT: Final = -1

WRITTEN_VERSION: Final = 3
HIGHEST_GROUP_METADATA_VERSION: Final = 4

_FIRST_FLEXIBLE_VERSION: Final = 4
_WHAT: Final = "the record of a group"


@struct
class MemberMetadata:
    """A member of a generation."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    rebalance_timeout: int = wire(INT32, "1+", default=NO_TIMEOUT)
    """-1 where the version has none: the session timeout is meant."""
    session_timeout: int = wire(INT32)
    subscription: bytes = wire(BYTES)
    assignment: bytes = wire(BYTES)


@struct
class GroupMetadataValue:
    """A group as its last completed rebalance, or its last leave, left it."""

    protocol_type: str = wire(STRING)
    generation: int = wire(INT32)
    protocol: str | None = wire(STRING, nullable="0+", default=None)
    leader: str | None = wire(STRING, nullable="0+", default=None)
    current_state_timestamp: int = wire(INT64, "2+", default=NO_TIMESTAMP)
    """Since when it is in this state, by the wall clock."""
    members: list[MemberMetadata] = wire([MemberMetadata])

    def encode(self) -> bytes:
        """In the version that is written. struct.error for a text above 32,767 bytes or a number out of range."""
        return encode(self, WRITTEN_VERSION)


def decode_group_metadata_value(data: Bytes) -> GroupMetadataValue:
    """Raises InvalidRecordError."""
    version = check_version(_WHAT, data, HIGHEST_GROUP_METADATA_VERSION)
    return decode(GroupMetadataValue, _WHAT, data, version, flexible=version >= _FIRST_FLEXIBLE_VERSION)


T = TypeVar("T")

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members speak this; others (Connect: `connect`) have their own."""

HIGHEST_VERSION: Final = 3


@struct
class ConsumerPartitions:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: list[int] = wire([INT32])


@struct
class ConsumerProtocolSubscription:
    """The subscription of a consumer, which it sends when it joins."""

    topics: list[str] = wire([STRING])
    user_data: bytes | None = wire(BYTES, nullable="0+", default=None)
    owned_partitions: list[ConsumerPartitions] = wire([ConsumerPartitions], "1+")
    generation_id: int = wire(INT32, "2+", default=-1)
    rack_id: str | None = wire(STRING, "3+", nullable="3+", default=None)


@struct
class ConsumerProtocolAssignment:
    """The assignment of a consumer, which the leader sends when it syncs."""

    assigned_partitions: list[ConsumerPartitions] = wire([ConsumerPartitions])
    user_data: bytes | None = wire(BYTES, nullable="0+", default=None)


def decode_subscription(data: Bytes) -> ConsumerProtocolSubscription:
    """Raises RemoteProtocolError."""
    return _decode(ConsumerProtocolSubscription, data)


def decode_assignment(data: Bytes) -> ConsumerProtocolAssignment:
    """Raises RemoteProtocolError. No bytes are no assignment: that is what a member gets whom the leader left out."""
    return _decode(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment(assigned_partitions=[])


def subscribed_topics(data: Bytes) -> list[str]:
    """The topics of a subscription of any version, and nothing else of it. Raises RemoteProtocolError."""
    return _decode(ConsumerProtocolSubscription, data, highest_version=0).topics


def encode_consumer_protocol(value: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    """The version and the fields that it has."""
    return encode(value, version)


def consumer_protocol_version(data: Bytes, name: str = "ConsumerProtocolSubscription") -> int:
    """Return the version of a subscription or an assignment. `name`: of the structure, for errors. Raises
    RemoteProtocolError."""
    if len(data) < VERSION.size:
        raise RemoteProtocolError(f"{name} has {len(data)} bytes. Its version alone takes {VERSION.size}")
    (version,) = VERSION.unpack_from(data)
    if version < 0:
        raise RemoteProtocolError(f"{name} has version {version}. Versions begin at 0")
    return int(version)


def _decode(cls: type[T], data: Bytes, *, highest_version: int = HIGHEST_VERSION) -> T:
    version = consumer_protocol_version(data, cls.__name__)
    value, _ = read(cls, min(version, highest_version), memoryview(data), VERSION.size, flexible=False)
    return value
