"""Records of `__consumer_offsets` whose kinds are told apart by the version of their key (Kafka: CoordinatorRecordType).

A key is its number and its fields, strings with two bytes of length; a value is version 0, which is flexible (KIP-482); null
takes away what the key names. A record that cannot be read raises InvalidRecordError.
"""

from __future__ import annotations

import struct as structs
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from ..errors import InvalidRecordError, RemoteProtocolError
from ..schema.codec import read, write
from ..types import Bytes
from .fields import check_version, read_version

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

HIGHEST_VALUE_VERSION: Final = 0

_VERSION: Final = structs.Struct(">h")


class RecordKinds(Generic[K, V]):
    """The kinds of one sort of group: number -> (class of the key, class of the value)."""

    def __init__(self, kinds: Mapping[int, tuple[type[K], type[V]]]) -> None:
        self._keys = {number: key for number, (key, _) in kinds.items()}
        self._numbers = {key: number for number, key in self._keys.items()}
        self._values = dict(kinds.values())

    def encode_key(self, key: K) -> bytes:
        """struct.error for a text above 32,767 bytes."""
        return _VERSION.pack(self._numbers[type(key)]) + b"".join(write(key, 0, flexible=False))

    def decode_key(self, data: Bytes) -> K | None:
        """None for kinds of records that are not among these."""
        cls = self._keys.get(read_version("the key of a group's record", data))
        return None if cls is None else _read(cls, data, flexible=False)

    def encode_value(self, value: V) -> bytes:
        return _VERSION.pack(HIGHEST_VALUE_VERSION) + b"".join(write(value, HIGHEST_VALUE_VERSION, flexible=True))

    def decode_value(self, key: K, data: Bytes) -> V:
        """What a key's record says."""
        cls = self._values[type(key)]
        check_version(cls.__name__, data, HIGHEST_VALUE_VERSION)
        return _read(cls, data, flexible=True)

    def encode(self, record: tuple[K, V | None]) -> tuple[bytes, bytes | None]:
        """A record as the log has it."""
        key, value = record
        return self.encode_key(key), None if value is None else self.encode_value(value)


def _read(cls: type[T], data: Bytes, *, flexible: bool) -> T:
    view = memoryview(data)
    try:
        value, stop = read(cls, 0, view, _VERSION.size, flexible=flexible)
    except RemoteProtocolError as exc:
        raise InvalidRecordError(f"{cls.__name__}: {exc}") from exc
    if stop != len(view):
        raise InvalidRecordError(f"{cls.__name__} has {len(view)} bytes and ends at position {stop}")
    return value
