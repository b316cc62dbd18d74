"""The encoding of coordinator records: two bytes of version, then the fields of a structure in that version, which may be a
flexible one (KIP-482; Kafka: MessageUtil.toVersionPrefixedBytes).

`RecordKinds` has the records of `__consumer_offsets` and `__share_group_state` whose kinds are told apart by the version of
their key (Kafka: CoordinatorRecordType). Their keys are not flexible; a value is version 0, which is; a null value takes away
what the key names.

Reading raises InvalidRecordError: a record of a log is evidence, and one that cannot be read is never guessed at.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from ..errors import InvalidRecordError, RemoteProtocolError
from ..limits import INT16_MAX
from ..schema.codec import read, write
from ..schema.fields import STRING, wire
from ..schema.fields import struct as structure
from ..types import Bytes

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

HIGHEST_VALUE_VERSION: Final = 0
VERSION: Final = struct.Struct(">h")


class RecordKinds(Generic[K, V]):
    """The kinds of one sort of group: number -> (class of the key, class of the value)."""

    def __init__(self, kinds: Mapping[int, tuple[type[K], type[V]]]) -> None:
        self._keys = {number: key for number, (key, _) in kinds.items()}
        self._numbers = {key: number for number, key in self._keys.items()}
        self._values = dict(kinds.values())

    def encode_key(self, key: K) -> bytes:
        """struct.error for a text above 32,767 bytes."""
        return VERSION.pack(self._numbers[type(key)]) + b"".join(write(key, 0, flexible=False))

    def decode_key(self, data: Bytes) -> K | None:
        """None for kinds of records that are not among these."""
        cls = self._keys.get(read_version("the key of a group's record", data))
        return None if cls is None else decode(cls, cls.__name__, data, 0)

    def encode_value(self, value: V) -> bytes:
        return encode(value, HIGHEST_VALUE_VERSION, flexible=True)

    def decode_value(self, key: K, data: Bytes) -> V:
        """Decode the value of a key's record."""
        cls = self._values[type(key)]
        return decode(cls, cls.__name__, data, check_version(cls.__name__, data, HIGHEST_VALUE_VERSION), flexible=True)

    def encode(self, record: tuple[K, V | None]) -> tuple[bytes, bytes | None]:
        """A record as the log has it."""
        key, value = record
        return self.encode_key(key), None if value is None else self.encode_value(value)


@structure
class GroupKey:
    """The key of a record about a group."""

    group_id: str = wire(STRING)


@structure
class MemberKey:
    """The key of a record about a member of a group."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


def encode(value: object, version: int, *, flexible: bool = False) -> bytes:
    """The version and the fields that it has. struct.error for a text above 32,767 bytes or a number out of range."""
    return VERSION.pack(version) + b"".join(write(value, version, flexible=flexible))


def decode(cls: type[T], what: str, data: Bytes, version: int, *, flexible: bool = False) -> T:
    """Read the structure after the version, up to the end of the data. `what` names it in errors."""
    view = memoryview(data)
    try:
        value, stop = read(cls, version, view, VERSION.size, flexible=flexible)
    except RemoteProtocolError as exc:
        raise InvalidRecordError(f"{what}: {exc}") from exc
    if stop != len(view):
        raise InvalidRecordError(f"{what} has {len(view)} bytes and ends at position {stop}")
    return value


def encode_string(text: str) -> bytes:
    """A string of a version that is not flexible. ValueError above 32,767 bytes."""
    data = text.encode()
    if len(data) > INT16_MAX:
        raise ValueError(f"a string of {len(data)} bytes does not fit: {INT16_MAX} are possible")
    return VERSION.pack(len(data)) + data


def read_version(what: str, data: Bytes) -> int:
    """The version that stands before the fields. InvalidRecordError when there is none, or a negative one."""
    if len(data) < VERSION.size:
        raise InvalidRecordError(f"{what} has {len(data)} bytes. Its version alone takes {VERSION.size}")
    (version,) = VERSION.unpack_from(data)
    if version < 0:
        raise InvalidRecordError(f"{what} has version {version}")
    return int(version)


def check_version(what: str, data: Bytes, highest: int) -> int:
    """The version, if it is one from 0 to `highest`. InvalidRecordError for later ones: a newer program wrote them."""
    version = read_version(what, data)
    if version > highest:
        raise InvalidRecordError(f"{what} has version {version}, 0 to {highest} are known. A newer program wrote it")
    return version
