"""`walk` for the small batch that most producers send: a few records, each walked on the spot by a plain function.

It says nothing about what it does not read to the end, be it damaged or merely much: that is left to `walk_steps`, which
knows the words for it. So it accepts nothing that `walk_steps` refuses, and learns the same of what it accepts.
"""

from __future__ import annotations

from typing import Final

from ..errors import InvalidRecordError
from ..limits import INT64_MAX
from .alike import LEAST_RUN, SHORT_DELTAS, alike_run
from .payload import skip_headers
from .varint import decode_unsigned_varint, decode_varlong
from .walk import FOLDED_FEW

MOST_STEPS: Final = 192
"""Records and headers of a batch, below what `walk_steps` pauses after: 20 to 80 us."""

FewRecords = tuple[int, int, bool]
"""Smallest and largest timestamp delta, and whether a key is null."""


def walk_few(data: bytes, count: int) -> FewRecords | None:
    """What `count` records, of at least one and which are all of `data`, have in common; None for what `walk_steps` must look
    at."""
    least, most, has_null_key, headers = INT64_MAX + 1, -INT64_MAX - 2, False, count
    position, last_folded = 0, -1
    next_try = 0 if count > LEAST_RUN else count << 1
    expected, end_expected = 0, count << 1
    try:
        while expected < end_expected:
            start = position
            if (length := data[position]) < 0x80:
                position += 2  # attributes mean nothing
            elif (second := data[position + 1]) < 0x80:
                length = length & 0x7F | second << 7
                position += 3
            else:
                length, position = decode_unsigned_varint(data, position)
                position += 1
            end = position - 1 + (length >> 1)
            if (folded := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                folded = folded & 0x7F | second << 7
                position += 2
            else:
                delta, position = decode_varlong(data, position)
                folded = delta << 1 if delta >= 0 else ~delta << 1 | 1
            if folded != last_folded:
                last_folded = folded
                delta = folded >> 1 ^ -(folded & 1)
                if delta > most:
                    most = delta
                if delta < least:
                    least = delta
            if (folded := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                folded = folded & 0x7F | second << 7
                position += 2
            else:
                folded, position = decode_unsigned_varint(data, position)
            if folded != expected:
                return None
            if (folded := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                folded = folded & 0x7F | second << 7
                position += 2
            else:
                folded, position = decode_unsigned_varint(data, position)
            if folded & 1:
                has_null_key = True
            else:
                position += folded >> 1
            if (folded := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                folded = folded & 0x7F | second << 7
                position += 2
            else:
                folded, position = decode_unsigned_varint(data, position)
            if not folded & 1:
                position += folded >> 1
            if folded := data[position]:
                headers += folded >> 1
                if folded >= FOLDED_FEW or headers > MOST_STEPS:
                    return None
                position = skip_headers(data, position, end)
            else:
                position += 1
            if position != end or length & 1:
                return None
            if expected == next_try:
                next_try += SHORT_DELTAS << 1
                run = None
                if position < len(data) and data[position] == data[start]:
                    run = alike_run(data, start, expected >> 1, count)
                if run is not None:
                    position += run.records_count * run.size_bytes
                    expected += run.records_count << 1
                    least, most = min(least, *run.timestamp_deltas), max(most, *run.timestamp_deltas)
            expected += 2
    except (IndexError, InvalidRecordError):
        return None
    return (least, most, has_null_key) if position == len(data) else None
