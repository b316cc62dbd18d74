"""Where in a batch its records lie: what compaction needs to know of a record, without building it.

Varints of one and two bytes are decoded in place (see `protocol.records.walk`): at 100-byte records this loop is half of the
cleaner's work.
"""

from __future__ import annotations

from typing import NamedTuple

from ....protocol.records.batch import BatchHeader
from ....protocol.records.unpacking import raise_consumption, raise_length, raise_offset_delta, raise_underflow
from ....protocol.records.varint import decode_unsigned_varint, decode_varlong


class RecordSpan(NamedTuple):
    """A record in the uncompressed bytes [start, stop) of its batch's records, its length field included."""

    start: int
    stop: int
    body: int
    """Where the record goes on behind its timestamp delta."""
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def record_spans(data: bytes, header: BatchHeader) -> list[RecordSpan]:
    """The records in `data`, which is `records_data` of the batch. Headers of records are not looked into.

    Offset deltas increase and stay within the batch. Raises InvalidRecordError.
    """
    spans: list[RecordSpan] = []
    build, new = RecordSpan, tuple.__new__
    position, previous, last = 0, -1, header.last_offset_delta
    try:
        for _ in range(header.records_count):
            start = position
            if (length := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                length = length & 0x7F | second << 7
                position += 2
            else:
                length, position = decode_unsigned_varint(data, position)
            stop = position + (length >> 1)
            if (folded := data[position + 1]) < 0x80:
                position += 2
                timestamp_delta = folded >> 1 ^ -(folded & 1)
            elif (second := data[position + 2]) < 0x80:
                folded = folded & 0x7F | second << 7
                position += 3
                timestamp_delta = folded >> 1 ^ -(folded & 1)
            else:
                timestamp_delta, position = decode_varlong(data, position + 1)
            body = position
            if (folded := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                folded = folded & 0x7F | second << 7
                position += 2
            else:
                folded, position = decode_unsigned_varint(data, position)
            offset_delta = folded >> 1 ^ -(folded & 1)
            if not previous < offset_delta <= last:
                raise_offset_delta(header, len(spans), offset_delta)
            previous = offset_delta
            if (folded := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                folded = folded & 0x7F | second << 7
                position += 2
            else:
                folded, position = decode_unsigned_varint(data, position)
            if folded & 1:
                key = None
            else:
                key = data[position : position + (folded >> 1)]
                position += folded >> 1
            # Zigzag keeps the sign in the lowest bit of the first byte: a length below 0 is null.
            has_value = not data[position] & 1
            if length & 1 or position >= stop:
                raise_length(header, len(spans), stop - position)
            spans.append(new(build, (start, stop, body, timestamp_delta, offset_delta, key, has_value)))
            position = stop
    except IndexError:
        raise_underflow(header, len(spans), data)
    if position != len(data):
        raise_consumption(header, position, data)
    return spans
