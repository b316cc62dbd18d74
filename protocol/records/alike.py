"""Records of one size, one behind the other, checked column by column: what programs that send numbers or structures produce.

Where a record has been read whole, those behind it that have its size and its lengths differ in the bytes of keys and values,
in timestamps and offset deltas only. Each byte of a length is then a column of equal bytes, which a slice with a stride takes
out at once: 0.16 us for a record of 100 bytes instead of 0.93 (walk_records, batches of 128 KiB, busy machine, 2026-11-22).
Whatever does not fit is left to the walk that reads record by record: nothing is refused here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SHORT_DELTAS: Final = 64
"""Offset deltas below take a byte, those up to LONG_DELTAS two; a run ends where they grow, because its records do."""
LONG_DELTAS: Final = 8192
TRIED_EACH: Final = 64
"""Records, from the first one on."""
LEAST_RUN: Final = 16
"""Fewer are read one by one in the same time."""
MOST_RUN: Final = 16 * TRIED_EACH
"""What does not fit is found after so many."""
_LOW: Final = bytes(delta << 1 & 0x7F | 0x80 for delta in range(LONG_DELTAS))
_HIGH: Final = bytes(delta >> 6 for delta in range(LONG_DELTAS))
_CONTINUED: Final = bytes(range(0x80, 0x100))
_SHORT: Final = bytes(delta << 1 for delta in range(SHORT_DELTAS))
_MOST_TIMESTAMP_BYTES: Final = 9
"""Ten could be more than 64 bits, which the other walk looks at."""


class Alike(NamedTuple):
    """A run of records."""

    records_count: int
    size_bytes: int
    """Of one of them."""
    timestamp_deltas: set[int]


def alike_run(data: bytes, start: int, delta: int, count: int) -> Alike | None:
    """The records behind the one at `start`, which is whole and has the offset delta `delta`, up to the first one that is not
    alike, or whose delta is longer; None when they are not, or are too few. `count`: of all records of the batch."""
    stop = min(count, SHORT_DELTAS if delta < SHORT_DELTAS else LONG_DELTAS, delta + MOST_RUN)
    body = start + 1 if data[start] < 0x80 else _behind_varint(data, start)
    timestamp = body + 1
    offset = timestamp + 1 if data[timestamp] < 0x80 else _behind_varint(data, timestamp)
    key = offset + 1 if data[offset] < 0x80 else _behind_varint(data, offset)
    key_bytes = key + 1 if (key_length := data[key]) < 0x80 else _behind_varint(data, key)
    if key_length >= 0x80:
        key_length = _unsigned(data, key, key_bytes)
    value = key_bytes if key_length & 1 else key_bytes + (key_length >> 1)
    value_bytes = value + 1 if (value_length := data[value]) < 0x80 else _behind_varint(data, value)
    if value_length >= 0x80:
        value_length = _unsigned(data, value, value_bytes)
    size = body - start + (_unsigned(data, start, body) >> 1)
    first = start + size
    times = min(stop - delta - 1, (len(data) - first) // size)
    if times < LEAST_RUN or data[first - 1] or offset - timestamp > _MOST_TIMESTAMP_BYTES:
        return None
    if value_bytes + (0 if value_length & 1 else value_length >> 1) + 1 != first:
        return None
    same = (*range(start, body), *range(key, key_bytes), *range(value, value_bytes), first - 1)
    for position in same:
        column = data[position + size : first + times * size : size]
        times -= len(column.lstrip(data[position : position + 1]))
        if times < LEAST_RUN:
            return None
    end = first + times * size
    if not _offsets_follow(data, offset + size, key - offset, size, end, slice(delta + 1, delta + 1 + times)):
        return None
    columns = [data[position + size : end : size] for position in range(timestamp, offset)]
    deltas = _timestamps(columns)
    return None if deltas is None else Alike(times, size, deltas)


def _offsets_follow(data: bytes, position: int, width: int, size: int, end: int, deltas: slice) -> bool:
    if width == 1 and deltas.stop <= SHORT_DELTAS:
        return data[position:end:size] == _SHORT[deltas]
    if width != 2 or deltas.start < SHORT_DELTAS:
        return False
    return data[position:end:size] == _LOW[deltas] and data[position + 1 : end : size] == _HIGH[deltas]


def _timestamps(columns: list[bytes]) -> set[int] | None:
    """The different deltas; None when one has not as many bytes as the first record's."""
    *before, ends = columns
    if not ends.isascii() or b"".join(before).translate(None, _CONTINUED):
        return None
    if not before:
        return {folded >> 1 ^ -(folded & 1) for folded in set(ends)}
    if len(before) == 1:
        both = {low & 0x7F | high << 7 for low, high in set(zip(before[0], ends, strict=True))}
        return {folded >> 1 ^ -(folded & 1) for folded in both}
    deltas = set()
    for encoded in set(zip(*columns, strict=True)):
        folded = 0
        for shift, byte in enumerate(encoded):
            folded |= (byte & 0x7F) << 7 * shift
        deltas.add(folded >> 1 ^ -(folded & 1))
    return deltas


def _behind_varint(data: bytes, position: int) -> int:
    while data[position] >= 0x80:
        position += 1
    return position + 1


def _unsigned(data: bytes, start: int, end: int) -> int:
    value = 0
    for position in range(end - 1, start - 1, -1):
        value = value << 7 | data[position] & 0x7F
    return value
