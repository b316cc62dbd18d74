"""Variable-length integers as Kafka's record format writes them (Kafka: ByteUtils; Protocol Buffers' base 128 varints).

Seven bits per byte, least significant group first, the high bit says that another byte follows. Signed values are
zigzag-folded first, so that small negative numbers stay short.

| function pair | range | at most |
|---|---|---|
| varint | signed 32 bit, zigzag | 5 bytes |
| varlong | signed 64 bit, zigzag | 10 bytes |
| unsigned_varint | 32 bit, not folded | 5 bytes |

Encoders write the shortest form. Decoders take longer forms too, and drop the bits above 32 (64) that a last byte may
carry, as Kafka's shifts do.
"""

from __future__ import annotations

from typing import Final

from ..errors import InvalidRecordError
from ..types import Bytes

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10

_MASK_32: Final = 0xFFFFFFFF
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF


def encode_varint(value: int) -> bytes:
    """Encode a signed 32 bit value; bits above 32 are dropped."""
    return _encode((value << 1 ^ value >> 31) & _MASK_32)


def encode_varlong(value: int) -> bytes:
    """Encode a signed 64 bit value; bits above 64 are dropped."""
    return _encode((value << 1 ^ value >> 63) & _MASK_64)


def encode_unsigned_varint(value: int) -> bytes:
    """Encode 32 bits without folding; -1 is written as 2**32 - 1."""
    return _encode(value & _MASK_32)


def decode_varint(buffer: Bytes, position: int) -> tuple[int, int]:
    """Return the signed 32 bit value at `position` and the position after it."""
    folded, position = decode_unsigned_varint(buffer, position)
    return folded >> 1 ^ -(folded & 1), position


def decode_varlong(buffer: Bytes, position: int) -> tuple[int, int]:
    """Return the signed 64 bit value at `position` and the position after it."""
    folded, position = _decode(buffer, position, MAX_VARLONG_BYTES)
    folded &= _MASK_64
    return folded >> 1 ^ -(folded & 1), position


def decode_unsigned_varint(buffer: Bytes, position: int) -> tuple[int, int]:
    """Return the unsigned 32 bit value at `position` and the position after it."""
    value, position = _decode(buffer, position, MAX_VARINT_BYTES)
    return value & _MASK_32, position


def _encode(unsigned: int) -> bytes:
    if unsigned < 0x80:
        return _ONE_BYTE[unsigned]
    encoded = bytearray()
    while unsigned >= 0x80:
        encoded.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    encoded.append(unsigned)
    return bytes(encoded)


def _decode(buffer: Bytes, position: int, max_bytes: int) -> tuple[int, int]:
    start, value, shift = position, 0, 0
    try:
        while (byte := buffer[position]) >= 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            position += 1
            if position - start == max_bytes:
                raise InvalidRecordError(
                    f"varint at position {start} does not end: all of its {max_bytes} bytes announce another one"
                )
    except IndexError:
        raise InvalidRecordError(f"varint at position {start} does not end: the data has only {len(buffer)} bytes") from None
    return value | byte << shift, position + 1


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))

SMALL_VARINTS: Final = tuple(encode_varint(value) for value in range(1024))
"""Encodings of the small values that most lengths and deltas of a batch are; a look-up is a tenth of a call."""
