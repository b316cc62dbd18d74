"""Control records: what the one record of a control batch says (KIP-98; Kafka: ControlRecordType).

| field | bytes | meaning |
|---|---:|---|
| key | 2 | version, 0; later versions are read as 0 |
| | 2 | type |
| value of ABORT and COMMIT | 2 | version, 0; later versions are read as 0 |
| | 4 | epoch of the transaction coordinator |

Longer keys and values are accepted, as Kafka does. The values of the other types belong to Kafka's quorum.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

from ..errors import InvalidRecordError
from ..types import Bytes
from .varint import encode_varint

CONTROL_KEY_BYTES: Final = 4

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
# Length 16, attributes, timestamp and offset delta, key of 4 bytes, value of 6 bytes, no headers; lengths are zigzag.
_MARKER: Final = struct.Struct(">BBBBBhhBhiB")


class ControlRecordType(enum.IntEnum):
    """The type of a control record; unknown types are read as UNKNOWN and never written."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_record_type(key: Bytes | None) -> ControlRecordType:
    """Read a control record's key. InvalidRecordError when it is too short or of a negative version."""
    if key is None or len(key) < CONTROL_KEY_BYTES:
        raise InvalidRecordError(f"control record key {key!r} has fewer than {CONTROL_KEY_BYTES} bytes")
    version, control_type = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"control record key has version {version}, expected 0 or later")
    return _KNOWN_TYPES.get(control_type, ControlRecordType.UNKNOWN)


def coordinator_epoch(value: Bytes | None) -> int:
    """Read the value of an ABORT or COMMIT record. InvalidRecordError as for the key."""
    if value is None or len(value) < _VALUE.size:
        raise InvalidRecordError(f"end transaction marker value {value!r} has fewer than {_VALUE.size} bytes")
    version, epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecordError(f"end transaction marker value has version {version}, expected 0 or later")
    return int(epoch)


def end_txn_record(control_type: ControlRecordType, coordinator_epoch: int) -> bytes:
    """The 17 bytes of an ABORT or COMMIT record that is the only one of its batch."""
    return _MARKER.pack(32, 0, 0, 0, 8, 0, control_type, 12, 0, coordinator_epoch, 0)


def commit_of_nothing(offset_delta: int) -> bytes:
    """A COMMIT record at some distance from its batch's base offset, without a time of its own."""
    body = b"".join(
        (
            b"\0\0",  # attributes, timestamp delta
            encode_varint(offset_delta),
            encode_varint(_KEY.size),
            _KEY.pack(0, ControlRecordType.COMMIT),
            encode_varint(_VALUE.size),
            _VALUE.pack(0, 0),
            b"\0",  # no headers
        )
    )
    return encode_varint(len(body)) + body


_KNOWN_TYPES: Final = {int(member): member for member in ControlRecordType if member >= 0}
