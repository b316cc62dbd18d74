"""What consumers tell each other through a classic group: their subscriptions, and the assignment that the leader made
(Kafka: ConsumerProtocol, ConsumerProtocolSubscription, ConsumerProtocolAssignment; KIP-429, KIP-792, KIP-881).

| subscription | in versions | assignment | in versions |
|---|---|---|---|
| topics | all | partitions by topic | all |
| user data, null for none | all | user data, null for none | all |
| owned partitions by topic | 1 on | | |
| generation of what is owned | 2 on | | |
| rack, null for none | 3 on | | |

Two bytes of version stand before. A later version begins with the fields of those before it, so it is read as the highest one
that is known here, and bytes behind the last field are passed over. The server carries these bytes without looking at them,
except to say which topics a group is subscribed to.
"""

from __future__ import annotations

import struct as structs
from typing import Final, TypeVar

from ..errors import RemoteProtocolError
from ..schema.codec import read, write
from ..schema.fields import BYTES, INT32, STRING, struct, wire
from ..types import Bytes

T = TypeVar("T")

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members speak this; others (Connect: `connect`) have their own."""

HIGHEST_VERSION: Final = 3

_VERSION: Final = structs.Struct(">h")


@struct
class ConsumerPartitions:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: list[int] = wire([INT32])


@struct
class ConsumerProtocolSubscription:
    """What a consumer wants, sent when it joins."""

    topics: list[str] = wire([STRING])
    user_data: bytes | None = wire(BYTES, nullable="0+", default=None)
    owned_partitions: list[ConsumerPartitions] = wire([ConsumerPartitions], "1+")
    generation_id: int = wire(INT32, "2+", default=-1)
    rack_id: str | None = wire(STRING, "3+", nullable="3+", default=None)


@struct
class ConsumerProtocolAssignment:
    """What a consumer gets, sent by the leader when it syncs."""

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
    return _VERSION.pack(version) + b"".join(write(value, version, flexible=False))


def _decode(cls: type[T], data: Bytes, *, highest_version: int = HIGHEST_VERSION) -> T:
    if len(data) < _VERSION.size:
        raise RemoteProtocolError(f"{cls.__name__} has {len(data)} bytes; its version alone takes {_VERSION.size}")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise RemoteProtocolError(f"{cls.__name__} has version {version}; versions begin at 0")
    value, _ = read(cls, min(version, highest_version), memoryview(data), _VERSION.size, flexible=False)
    return value
