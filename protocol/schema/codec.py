"""Reading and writing structures of Kafka's protocol. Functions are made when a structure is first met in a version, which
takes 1 to 3 ms, and kept.

A message's bytes come out as buffers: one for everything before its records, the records themselves, and so on, so that a
socket can be given them without a copy.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from ..errors import RemoteProtocolError
from ..limits import KIB
from ..types import Bytes
from .reader import Reader, make_reader
from .writer import Writer, make_writer

T = TypeVar("T")

COPIED_BYTES: Final = 16 * KIB
"""Records below this are copied into the buffer before them: another buffer costs a call more than the copy."""


_Key = tuple[type, int, bool]

_readers: Final[dict[_Key, Reader]] = {}
_writers: Final[dict[_Key, Writer]] = {}


def _reader(cls: type, version: int, flexible: bool) -> Reader:
    key = (cls, version, flexible)
    if key not in _readers:
        _readers[key] = make_reader(cls, version, flexible=flexible)
    return _readers[key]


def _writer(cls: type, version: int, flexible: bool) -> Writer:
    key = (cls, version, flexible)
    if key not in _writers:
        _writers[key] = make_writer(cls, version, flexible=flexible)
    return _writers[key]


def read(cls: type[T], version: int, data: memoryview, at: int = 0, *, flexible: bool) -> tuple[T, int]:
    """(value, position behind it) of the structure that begins at `at`. Raises RemoteProtocolError saying what is wrong."""
    try:
        value, stop = _reader(cls, version, flexible)(data, at)
    except (struct.error, IndexError):
        raise RemoteProtocolError(f"{cls.__name__} v{version} ends too early: it has {len(data) - at} bytes") from None
    except UnicodeDecodeError as exc:
        raise RemoteProtocolError(f"{cls.__name__} v{version}: a string is not UTF-8: {exc}") from None
    return value, stop


def write(value: object, version: int, *, flexible: bool) -> list[Bytes]:
    """The buffers of a structure, those between records joined."""
    parts: list[Bytes] = []
    _writer(type(value), version, flexible)(value, parts)
    return _joined(parts)


def _joined(parts: list[Bytes]) -> list[Bytes]:
    buffers: list[Bytes] = []
    start = 0
    for position, part in enumerate(parts):
        if len(part) >= COPIED_BYTES:
            if start < position:
                buffers.append(b"".join(parts[start:position]))
            buffers.append(part)
            start = position + 1
    if start < len(parts):
        buffers.append(b"".join(parts[start:]))
    return buffers
