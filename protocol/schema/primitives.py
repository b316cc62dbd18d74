"""Helpers of the generated readers and writers: long varints, packings whose shape is known only at run time, the errors of
hostile lengths.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from ..errors import RemoteProtocolError
from ..limits import KIB, MAX_STRING_CHARS, UINT32_MAX

MAX_ELEMENTS: Final = 100_000
"""Elements and tagged fields that a message of up to 3 MB may have in all. At 100 bytes for a small structure about 10 MB of
objects; ten times what MAX_PARTITIONS_PER_REQUEST allows."""

BYTES_PER_ELEMENT: Final = 32
"""A larger message may have an element for each so many of its bytes: then its objects take about three times the memory that
it was charged for."""
MOST_ELEMENTS: Final = 1_000_000
"""In a message of any size. Kafka 4.4 allows so many in each array, and 10,000 tagged fields in each structure."""

COPIED_BYTES: Final = 16 * KIB
"""Records below this are copied into the buffer before them: another buffer costs a call more than the copy."""

KEPT_LAYOUTS: Final = 256
"""Of one place in a message. Arrays there are as long as a partition has replicas."""

ELEMENTS_PER_PAUSE: Final = 256
"""0.2 to 0.3 ms."""

UNSIGNED_VARINTS: Final = [bytes([number]) for number in range(128)]
"""The encodings of one byte, which nearly every length has."""


def read_unsigned_varint(data: memoryview, at: int) -> tuple[int, int]:
    """(number, position behind it). Raises RemoteProtocolError above 32 bits, IndexError at the end of the data."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise RemoteProtocolError("a varint has more than 5 bytes")
    if number > UINT32_MAX:
        raise RemoteProtocolError(f"a varint is {number}, above 32 bits")
    return number, at


def write_unsigned_varint(number: int) -> bytes:
    """Seven bits a byte, the low ones first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class ArrayLayouts(dict[int, struct.Struct]):
    """Count -> layout of so many numbers. Owner: the reader of an array."""

    def __init__(self, letter: str) -> None:
        super().__init__()
        self._letter = letter

    def __missing__(self, count: int) -> struct.Struct:
        layout = struct.Struct(f">{count}{self._letter}")
        if len(self) < KEPT_LAYOUTS:
            self[count] = layout
        return layout


class Segment(NamedTuple):
    """Numbers, and the array of numbers behind them."""

    letters: str
    """struct's, of the numbers."""
    values: int
    """How many arguments they take."""
    array: str
    """struct's letter of the array's numbers."""


class RunLayouts(dict[tuple[int, ...], Callable[..., bytes]]):
    """Lengths of arrays as they are on the wire -> what packs the numbers before each array, its length and its numbers, and
    what stands behind the last. Owner: one place in a writer."""

    def __init__(self, segments: Sequence[Segment], tail: str, *, flexible: bool) -> None:
        super().__init__()
        self._segments = segments
        self._tail = tail
        self._flexible = flexible

    def __missing__(self, lengths: tuple[int, ...]) -> Callable[..., bytes]:
        are_long = self._flexible and max(lengths) > 127
        layout, place, places = ">", 0, []
        for segment, length in zip(self._segments, lengths, strict=True):
            count = max(0, length - self._flexible)
            places.append(place + segment.values)
            place += segment.values + 1 + count
            varint = f"{len(write_unsigned_varint(length))}s" if are_long else "B"
            layout += f"{segment.letters}{varint if self._flexible else 'i'}{count}{segment.array}"
        pack: Callable[..., bytes] = struct.Struct(layout + self._tail).pack
        if are_long:
            pack = functools.partial(_pack_long, pack, places)
        if len(self) < KEPT_LAYOUTS:
            self[lengths] = pack
        return pack


def _pack_long(pack: Callable[..., bytes], places: Sequence[int], *values: Any) -> bytes:
    """`places`: of the lengths among the values; they are varints."""
    written = list(values)
    for place in places:
        written[place] = write_unsigned_varint(written[place])
    return pack(*written)


def refuse_length(what: str, length: int, left: int) -> NoReturn:
    """Raises RemoteProtocolError for a length that is negative, above the bytes that are there, or above a string's limit."""
    if length < 0:
        raise RemoteProtocolError(f"{what} has a length of {length} and may not be null")
    if length > left:
        raise RemoteProtocolError(f"{what} claims {length} bytes, {left} are left")
    raise RemoteProtocolError(f"{what} has {length} bytes, a string may have {MAX_STRING_CHARS}")


def refuse_count(what: str, count: int, left: int) -> NoReturn:
    """Raises RemoteProtocolError for an array that cannot be there."""
    if count < 0:
        raise RemoteProtocolError(f"{what} has a count of {count} and may not be null")
    if count > left:
        raise RemoteProtocolError(f"{what} claims {count} elements, {left} bytes are left")
    raise RemoteProtocolError(
        f"{what} has {count} elements. All arrays of a message may have {MAX_ELEMENTS}, or one for each "
        f"{BYTES_PER_ELEMENT} bytes of it up to {MOST_ELEMENTS}"
    )


def most_elements(size: int) -> int:
    """Return the number of elements that a message of so many bytes may have in all its arrays."""
    return max(MAX_ELEMENTS, min(size // BYTES_PER_ELEMENT, MOST_ELEMENTS))


def refuse_tag(what: str, stop: int, at: int) -> NoReturn:
    """Raises RemoteProtocolError for a tagged field whose size is not that of its content."""
    raise RemoteProtocolError(f"{what} ends at byte {at}, its size says {stop}")
