"""Messages of magic 0 and 1, as Kafka wrote them before 0.11, in place of batches that a test has chosen.

| bytes | field |
|---|---|
| 8 | offset |
| 4 | size of the rest |
| 4 | CRC-32 (of zlib) of the rest |
| 1 | magic |
| 1 | attributes: 0, not compressed |
| 8 | timestamp, ms; only with magic 1 |
| 4, n | key; length -1: null |
| 4, n | value |

A broker of any version sends what it has stored to clients that fetch with version 4 or later (KIP-724), and a log may have
such messages since long ago. Here the log has a batch of today with the same records, which all other readers get.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

from ....protocol.errors import RequestError
from ....protocol.records.batch import iter_batches
from ....protocol.records.record import iter_records
from ....protocol.types import Bytes, Record
from ...listeners.kafka.door import NO_TOPIC_ID, KafkaDoor

OldFormats = Mapping[tuple[bytes, int], Mapping[int, int]]
"""By topic id and partition: base offsets of batches, and the magic that Kafka clients get them with."""
_BEFORE: Final = struct.Struct(">qiI")
_NULL: Final = -1


def old_message(record: Record, magic: int) -> bytes:
    """Return a record as a message with its offset and size."""
    body = bytes((magic, 0)) + (record.timestamp.to_bytes(8, "big", signed=True) if magic else b"")
    for field in (record.key, record.value):
        body += (_NULL if field is None else len(field)).to_bytes(4, "big", signed=True) + (field or b"")
    return _BEFORE.pack(record.offset, len(body) + 4, crc32(body)) + body


def in_old_formats(records: Bytes, magics: Mapping[int, int]) -> Bytes:
    """Return fetched batches with messages in place of those that begin at an offset in `magics`. A batch that was cut off at
    the end is left out then: its reader fetches it again."""
    parts, is_changed = list[Bytes](), False
    for header, batch in iter_batches(records):
        magic = magics.get(header.base_offset)
        is_changed = is_changed or magic is not None
        parts.append(batch if magic is None else b"".join(old_message(each, magic) for each in iter_records(batch, header)))
    return b"".join(parts) if is_changed else records


def with_old_formats(formats: OldFormats, door: KafkaDoor, response: Any) -> Any:
    """A fetch response with messages in place of the batches that a test has chosen."""
    for topic in response.responses:
        try:
            topic_id = topic.topic_id if topic.topic_id != NO_TOPIC_ID else door.broker.topics.id_of(topic.topic)
        except RequestError:
            continue
        for each in topic.partitions:
            if each.records and (magics := formats.get((topic_id, each.partition_index))):
                each.records = in_old_formats(each.records, magics)
    return response
