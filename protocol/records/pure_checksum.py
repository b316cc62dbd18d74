"""CRC-32C without a compiled module: the buffer is one large integer, which is folded until a table can finish it.

The bits of a buffer, the lowest bit of a byte first, are the coefficients of a polynomial, the highest power first. If n + 32
or more bits follow the first n bits, you can multiply those n by a power of x modulo the CRC's polynomial, and add the
product to the bits that follow. The remainder stays the same, and the buffer is shorter. The power has 32 bits, so a fold is
a shift and a XOR of large integers for each 1 among them.
"""

from __future__ import annotations

from typing import Final

from ..types import Bytes

POLYNOMIAL: Final = 0x82F63B78
"""Without its highest power, the lowest bit first."""
PIECE_BYTES: Final = 32768
"""Folded at a time, so that the integers stay in a processor's cache."""
TABLE_BYTES: Final = 128
"""Buffers up to here are faster with the table."""
LAST_BITS: Final = 64
"""Left for the table after the last fold."""


def _table() -> tuple[int, ...]:
    crcs = list(range(256))
    for _ in range(8):
        crcs = [crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0) for crc in crcs]
    return tuple(crcs)


def _folds() -> tuple[tuple[int, tuple[int, ...]], ...]:
    """(bits that a fold leaves, shifts by which it adds the others), the largest first. A fold halves what is above 32 bits."""
    sizes = [LAST_BITS]
    while sizes[-1] < PIECE_BYTES * 8:
        sizes.append(2 * sizes[-1] - 32)
    power, folds = 1 << 31, []
    for exponent in range(1, sizes[-2] + 1):
        power = power >> 1 ^ (POLYNOMIAL if power & 1 else 0)
        if exponent in sizes:
            folds.append((exponent, tuple(at for at in range(32) if power >> at & 1)))
    return tuple(reversed(folds))


_TABLE: Final = _table()
_FOLDS: Final = _folds()


def crc32c(data: Bytes, crc: int = 0) -> int:
    """Return the unsigned checksum of `data`, continued from `crc`, the checksum of the bytes before it."""
    view = memoryview(data).cast("B")
    state = crc ^ 0xFFFFFFFF
    for start in range(0, len(view), PIECE_BYTES):
        piece: Bytes = view[start : start + PIECE_BYTES]
        if len(piece) > TABLE_BYTES:
            state, piece = 0, _folded(int.from_bytes(piece, "little") ^ state, len(piece) * 8)
        for byte in piece:
            state = state >> 8 ^ _TABLE[(state ^ byte) & 0xFF]
    return state ^ 0xFFFFFFFF


def _folded(bits: int, size: int) -> bytes:
    """Return LAST_BITS with the same remainder as this many bits."""
    for left, shifts in _FOLDS:
        if size > left:
            count = size - left
            first = bits & ((1 << count) - 1)
            bits >>= count
            first <<= left - count - 31
            for shift in shifts:
                bits ^= first << shift
            size = left
    return bits.to_bytes(LAST_BITS // 8, "little")
