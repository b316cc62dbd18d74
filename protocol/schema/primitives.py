"""What the generated readers and writers call for what is not one line: long varints and the errors of hostile lengths."""

from __future__ import annotations

from typing import Final, NoReturn

from ..errors import RemoteProtocolError
from ..limits import UINT32_MAX
from ..types import Bytes

MAX_ELEMENTS: Final = 100_000
"""Elements that the arrays of one message may have together. At 100 bytes for a small structure about 10 MB of objects; ten
times what MAX_PARTITIONS_PER_REQUEST allows."""

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


def join(parts: list[Bytes]) -> bytes:
    """The bytes of a tagged field."""
    return b"".join(parts)


def refuse_length(what: str, length: int, left: int) -> NoReturn:
    """Raises RemoteProtocolError for a length that is negative or above the bytes that are there."""
    if length < 0:
        raise RemoteProtocolError(f"{what} has a length of {length} and may not be null")
    raise RemoteProtocolError(f"{what} claims {length} bytes, {left} are left")


def refuse_count(what: str, count: int, left: int) -> NoReturn:
    """Raises RemoteProtocolError for an array that cannot be there."""
    if count < 0:
        raise RemoteProtocolError(f"{what} has a count of {count} and may not be null")
    if count > left:
        raise RemoteProtocolError(f"{what} claims {count} elements, {left} bytes are left")
    raise RemoteProtocolError(f"{what} has {count} elements, a message may have {MAX_ELEMENTS} in all")


def refuse_tag(what: str, stop: int, at: int) -> NoReturn:
    """Raises RemoteProtocolError for a tagged field whose size is not that of its content."""
    raise RemoteProtocolError(f"{what} ends at byte {at}, its size says {stop}")
