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
| subscription, assignment | bytes, whose meaning is the clients' (see `consumer_protocol`) | all |

Version 4 is flexible (KIP-482). Written is version 3, as Kafka 4.1 does.
"""

from __future__ import annotations

import struct as structs
from typing import Final

from ..errors import InvalidRecordError, RemoteProtocolError
from ..schema.codec import read, write
from ..schema.fields import BYTES, INT32, INT64, STRING, struct, wire
from ..types import Bytes
from .fields import check_version

NO_TIMESTAMP: Final = -1
NO_TIMEOUT: Final = -1

WRITTEN_VERSION: Final = 3
HIGHEST_VERSION: Final = 4

_FIRST_FLEXIBLE_VERSION: Final = 4
_VERSION: Final = structs.Struct(">h")
_WHAT: Final = "the record of a group"


@struct
class MemberMetadata:
    """One member as a generation has it."""

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
        return _VERSION.pack(WRITTEN_VERSION) + b"".join(write(self, WRITTEN_VERSION, flexible=False))


def decode_group_metadata_value(data: Bytes) -> GroupMetadataValue:
    """Raises InvalidRecordError."""
    version = check_version(_WHAT, data, HIGHEST_VERSION)
    view = memoryview(data)
    try:
        value, stop = read(GroupMetadataValue, version, view, _VERSION.size, flexible=version >= _FIRST_FLEXIBLE_VERSION)
    except RemoteProtocolError as exc:
        raise InvalidRecordError(f"{_WHAT}: {exc}") from exc
    if stop != len(view):
        raise InvalidRecordError(f"{_WHAT} has {len(view)} bytes and ends at position {stop}")
    return value
