"""Reading and writing structures of Kafka's protocol. Functions are made when a structure is first met in a version, which
takes 1 to 3 ms, and kept.

A message's bytes come out as buffers: one for everything before its records, the records themselves, and so on, so that a
socket can be given them without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import TypeVar

from ..errors import RemoteProtocolError
from ..types import Bytes
from .primitives import MAX_ELEMENTS
from .reader import Reader, SteppingReader, make_reader
from .writer import SteppingWriter, Writer, make_writer

T = TypeVar("T")


def read(
    cls: type[T], version: int, data: memoryview, at: int = 0, *, flexible: bool, elements: int = MAX_ELEMENTS
) -> tuple[T, int]:
    """(value, position behind it) of the structure that begins at `at`, with at most so many elements in all its arrays. Raises
    RemoteProtocolError saying what is wrong."""
    reader: Reader = make_reader(cls, version, flexible)
    try:
        return reader(data, at, elements)
    except (struct.error, IndexError, UnicodeDecodeError) as exc:
        raise _refusal(cls, version, len(data) - at, exc) from None


def read_steps(
    cls: type[T], version: int, data: memoryview, at: int = 0, *, flexible: bool, elements: int = MAX_ELEMENTS
) -> Generator[None, None, tuple[T, int]]:
    """`read` in steps, and without a copy of the whole: for what is large."""
    reader: SteppingReader = make_reader(cls, version, flexible, pauses=True)
    try:
        return (yield from reader(data, at, elements))
    except (struct.error, IndexError, UnicodeDecodeError) as exc:
        raise _refusal(cls, version, len(data) - at, exc) from None


def _refusal(cls: type, version: int, size: int, cause: Exception) -> RemoteProtocolError:
    if isinstance(cause, UnicodeDecodeError):
        return RemoteProtocolError(f"{cls.__name__} v{version}: a string is not UTF-8: {cause}")
    return RemoteProtocolError(f"{cls.__name__} v{version} ends too early: it has {size} bytes")


def write(value: object, version: int, *, flexible: bool) -> list[Bytes]:
    """The buffers of a structure: one, and others around each piece of large records."""
    writer: Writer = make_writer(type(value), version, flexible)
    parts: list[Bytes] = []
    large: list[int] = []
    writer(value, parts, large)
    return joined(parts, large)


def write_steps(value: object, version: int, *, flexible: bool) -> Generator[None, None, list[Bytes]]:
    """`write` in steps."""
    writer: SteppingWriter = make_writer(type(value), version, flexible, pauses=True)
    parts: list[Bytes] = []
    large: list[int] = []
    yield from writer(value, parts, large)
    return joined(parts, large)


def joined(parts: list[Bytes], large: list[int]) -> list[Bytes]:
    """The buffers of what a Writer has appended. `large`: the places of parts that are buffers of their own."""
    if not large:
        return [b"".join(parts)]
    buffers: list[Bytes] = []
    start = 0
    for position in large:
        buffers += [b"".join(parts[start:position]), parts[position]]
        start = position + 1
    if start < len(parts):
        buffers.append(b"".join(parts[start:]))
    return buffers
