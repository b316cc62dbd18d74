"""What a producer snapshot leaves out: `<offset>.batches` beside `<offset>.snapshot`. A file of ours; Kafka ignores the name.

A log recognises a producer's last five batches (see `producer_cursor`), Kafka's snapshot keeps the newest only. A client with
five requests in flight may send any of the five again after a restart, so those before the newest stand here.

| position | bytes | field |
|---:|---:|---|
| 0 | 2 | version, 0 |
| 2 | 4 | CRC-32C of everything from position 6 on, unsigned |
| 6 | 4 | the CRC that the snapshot of that offset carries |
| 10 | 4 | number of batches |
| 14 + 32 n | 8 | producer_id |
| | 4 | last_sequence |
| | 8 | last_offset |
| | 4 | offset_delta |
| | 8 | timestamp |

Batches of a producer ascend and have the epoch that the snapshot says. The file is in place before its snapshot and counts for
that one alone: the CRC tells when Kafka, or a repair, has written another under the same name. One that is missing, damaged or
of another snapshot is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from struct import Struct
from typing import Final

from ..disk.file_limits import MAX_BATCHES_BYTES as MAX_BATCHES_BYTES
from ..disk.paths import BATCHES_SUFFIX, segment_file
from ..errors import CorruptSnapshotError
from .producer_entry import BatchMetadata, ProducerEntry
from .sealed_files import seal, unseal

VERSION: Final = 0

_HEAD: Final = Struct(">Ii")
_BATCH: Final = Struct(">qiqiq")


def batches_path(directory: str, offset: int) -> str:
    return f"{directory}/{segment_file(offset, BATCHES_SUFFIX)}"


def encode_earlier(entries: Iterable[ProducerEntry], snapshot_crc: int) -> bytes:
    packed = [_BATCH.pack(entry.producer_id, *batch) for entry in entries for batch in entry.batches[:-1]]
    return seal(VERSION, _HEAD.pack(snapshot_crc, len(packed)) + b"".join(packed))


def decode_earlier(path: str, data: bytes) -> tuple[int, dict[int, list[BatchMetadata]]]:
    """The CRC of the snapshot that it belongs to, and batches by producer. Raises CorruptSnapshotError."""
    covered = unseal(path, data, VERSION, _HEAD.size)
    snapshot_crc, count = _HEAD.unpack_from(covered)
    if len(covered) != _HEAD.size + count * _BATCH.size:
        raise CorruptSnapshotError(f"{path} says {count} batches and has {len(covered) - _HEAD.size} bytes of them")
    found: dict[int, list[BatchMetadata]] = {}
    make = BatchMetadata._make
    for row in _BATCH.iter_unpack(covered[_HEAD.size :]):
        found.setdefault(row[0], []).append(make(row[1:]))
    return snapshot_crc, found


def with_earlier(path: str, data: bytes, entries: Iterable[ProducerEntry], snapshot_crc: int) -> list[ProducerEntry]:
    """The entries of a snapshot with all of their batches. Raises CorruptSnapshotError when the file is damaged, or is another
    snapshot's."""
    belongs_to, earlier = decode_earlier(path, data)
    if belongs_to != snapshot_crc:
        raise CorruptSnapshotError(
            f"{path} belongs to a snapshot with CRC {belongs_to:#010x}, the one there has {snapshot_crc:#010x}"
        )
    completed = []
    for entry in entries:
        if entry.batches and entry.producer_id in earlier:
            batches = (*earlier.pop(entry.producer_id), *entry.batches)
            if not all(before.last_offset < after.last_offset - after.offset_delta for before, after in pairwise(batches)):
                raise CorruptSnapshotError(
                    f"{path} has batches of producer {entry.producer_id} that do not ascend to its newest"
                )
            entry = entry._replace(batches=batches)
        completed.append(entry)
    if earlier:
        raise CorruptSnapshotError(f"{path} has batches of producer {min(earlier)}, of which the snapshot has none")
    return completed
