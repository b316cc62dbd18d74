"""The encoding inside coordinator records: version first, then fields in order (Kafka: MessageUtil.toVersionPrefixedBytes).

| field | in versions before the flexible ones | in flexible versions (KIP-482) |
|---|---|---|
| number | big-endian, 1, 2, 4 or 8 bytes | the same |
| string | 2 bytes length, -1 for null, UTF-8 | length + 1 as unsigned varint, 0 for null, UTF-8 |
| array | 4 bytes count, -1 for null, entries | count + 1 as unsigned varint, 0 for null, entries |
| end of a structure | - | tagged fields: count, then tag, size, bytes of each; those not known are passed over |

Reading raises InvalidRecordError: a record of a log is evidence, and one that cannot be read is never guessed at.

Records of `__consumer_offsets` whose kinds are told apart by the version of their key (Kafka: CoordinatorRecordType).

A key is its number and its fields, strings with two bytes of length; a value is version 0, which is flexible (KIP-482); null
takes away what the key names. A record that cannot be read raises InvalidRecordError.
"""

from __future__ import annotations

import struct
import struct as structs
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from ..errors import InvalidRecordError, RemoteProtocolError
from ..limits import INT16_MAX
from ..records.varint import decode_unsigned_varint
from ..schema.codec import read, write
from ..types import Bytes

K = TypeVar("K")
V = TypeVar("V")

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
        """Decode the value of a key's record."""
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


T = TypeVar("T")

_INT16: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">i")


def encode_string(text: str) -> bytes:
    """A string of a version that is not flexible. ValueError above 32,767 bytes."""
    data = text.encode()
    if len(data) > INT16_MAX:
        raise ValueError(f"a string of {len(data)} bytes does not fit: {INT16_MAX} are possible")
    return _INT16.pack(len(data)) + data


def encode_count(count: int | None) -> bytes:
    """Encode the length of an array in a version that is not flexible; None for a null array."""
    return _COUNT.pack(-1 if count is None else count)


class FieldReader:
    """Reads one key or value from its start. `what` names it in errors."""

    __slots__ = ("_data", "_flexible", "_position", "_what")

    def __init__(self, what: str, data: Bytes, *, flexible: bool = False, position: int = 0) -> None:
        self._what = what
        self._data = data
        self._flexible = flexible
        self._position = position

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next fields of fixed size."""
        start, self._position = self._position, self._position + layout.size
        if self._position > len(self._data):
            raise InvalidRecordError(f"{self._what} ends after {len(self._data)} bytes, {self._position} were expected")
        return layout.unpack_from(self._data, start)

    def string(self) -> str:
        """A string that must not be null."""
        text = self.optional_string()
        if text is None:
            raise InvalidRecordError(f"{self._what} has a null string at position {self._position}")
        return text

    def optional_string(self) -> str | None:
        """A string, or None."""
        length = self._length(_INT16)
        if length < 0:
            return None
        start, self._position = self._position, self._position + length
        if self._position > len(self._data):
            raise InvalidRecordError(f"{self._what} ends inside a string of {length} bytes at position {start}")
        try:
            return bytes(self._data[start : self._position]).decode()
        except UnicodeDecodeError as exc:
            raise InvalidRecordError(f"{self._what} has a string at position {start} that is not UTF-8: {exc}") from exc

    def array(self, entry: Callable[[], T], entry_bytes: int) -> list[T] | None:
        """An array of entries of at least `entry_bytes`, or None. A count beyond the bytes that are left is refused first."""
        count = self._length(_COUNT)
        if count < 0:
            return None
        if count * entry_bytes > len(self._data) - self._position:
            raise InvalidRecordError(f"{self._what} announces {count} entries at position {self._position} and ends before")
        return [entry() for _ in range(count)]

    def end_structure(self) -> dict[int, bytes]:
        """Return the tagged fields by tag; only flexible versions have some."""
        tagged: dict[int, bytes] = {}
        for _ in range(self._unsigned() if self._flexible else 0):
            tag, size = self._unsigned(), self._unsigned()
            start, self._position = self._position, self._position + size
            tagged[tag] = bytes(self._data[start : self._position])
        if self._position > len(self._data):
            raise InvalidRecordError(f"{self._what} ends inside its tagged fields, after {len(self._data)} bytes")
        return tagged

    def end(self) -> dict[int, bytes]:
        """Return the tagged fields. Everything was read: bytes after the last field are refused."""
        tagged = self.end_structure()
        if self._position != len(self._data):
            raise InvalidRecordError(f"{self._what} has {len(self._data)} bytes and ends at position {self._position}")
        return tagged

    def _length(self, layout: struct.Struct) -> int:
        if self._flexible:
            return self._unsigned() - 1
        (length,) = self.numbers(layout)
        if length < -1:
            raise InvalidRecordError(f"{self._what} has length {length} before position {self._position}")
        return int(length)

    def _unsigned(self) -> int:
        value, self._position = decode_unsigned_varint(self._data, self._position)
        return value


def read_version(what: str, data: Bytes) -> int:
    """The version that stands before the fields. InvalidRecordError when there is none, or a negative one."""
    if len(data) < _INT16.size:
        raise InvalidRecordError(f"{what} has {len(data)} bytes; its version alone takes {_INT16.size}")
    (version,) = _INT16.unpack_from(data)
    if version < 0:
        raise InvalidRecordError(f"{what} has version {version}")
    return int(version)


def check_version(what: str, data: Bytes, highest: int) -> int:
    """The version, if it is one from 0 to `highest`. InvalidRecordError for later ones: a newer program wrote them."""
    version = read_version(what, data)
    if version > highest:
        raise InvalidRecordError(f"{what} has version {version}, 0 to {highest} are known; a newer program wrote it")
    return version
