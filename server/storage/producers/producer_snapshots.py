"""Producer state on disk: `<offset>.snapshot`, where `offset` is the first one that it does not cover (Kafka:
ProducerSnapshot.json, ProducerStateManager).

| position | bytes | field |
|---:|---:|---|
| 0 | 2 | version, 1 |
| 2 | 4 | CRC-32C of everything from position 6 on, unsigned |
| 6 | 4 | number of entries |
| 10 + 46 n | 8 | producer_id |
| | 2 | epoch |
| | 4 | last_sequence, -1: no batch |
| | 8 | last_offset, -1: no batch |
| | 4 | offset_delta of the newest batch |
| | 8 | timestamp |
| | 4 | coordinator_epoch |
| | 8 | first offset of the open transaction, -1: none |

One is written when a segment is rolled, named after the new segment, and one when the log is closed. Only the newest batch of
a producer survives in it; those before stand in a file of ours beside it (see `earlier_batches`). It is derived: one that
cannot be read is passed over for an older one, and the log behind that is replayed; without any the log is replayed from its
start.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from struct import Struct
from typing import Final

from ....protocol.records.batch import BatchHeader
from ..disk.diskops import Procedure, Read
from ..disk.file_limits import MAX_SNAPSHOT_BYTES as MAX_SNAPSHOT_BYTES
from ..disk.path_ops import ListDirectory, ReadFile, Unlink, WriteFiles
from ..disk.paths import SNAPSHOT_SUFFIX, SNAPSHOT_SUFFIXES, base_offset_of, segment_file
from ..errors import CorruptSnapshotError
from ..segments.segment_view import SegmentView
from .earlier_batches import MAX_BATCHES_BYTES, batches_path, encode_earlier, with_earlier
from .producer_entry import BatchMetadata, ProducerEntry
from .producer_state import ProducerState
from .sealed_files import crc_of, seal, unseal

LOGGER: Final = logging.getLogger(__name__)

VERSION: Final = 1
"""1.4 million producers."""

_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{segment_file(offset, SNAPSHOT_SUFFIX)}"


def snapshot_paths(directory: str, offset: int) -> list[str]:
    """The snapshot and what it leaves out."""
    return [f"{directory}/{segment_file(offset, suffix)}" for suffix in SNAPSHOT_SUFFIXES]


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    packed = []
    for entry in entries:
        newest = entry.batches[-1] if entry.batches else BatchMetadata(-1, -1, 0, -1)
        packed.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                newest.last_sequence,
                newest.last_offset,
                newest.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
            )
        )
    return seal(VERSION, _COUNT.pack(len(packed)) + b"".join(packed))


def decode_snapshot(path: str, data: bytes) -> list[ProducerEntry]:
    """The entries of a file. Raises CorruptSnapshotError."""
    covered = unseal(path, data, VERSION, _COUNT.size)
    (count,) = _COUNT.unpack_from(covered)
    if len(covered) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{path} says {count} entries and has {len(covered) - _COUNT.size} bytes of them")
    return [_entry(*_ENTRY.unpack_from(covered, _COUNT.size + slot * _ENTRY.size)) for slot in range(count)]


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    first_offset: int,
) -> ProducerEntry:
    batches = (BatchMetadata(last_sequence, last_offset, offset_delta, timestamp),) if last_offset >= 0 else ()
    return ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, first_offset if first_offset >= 0 else None, batches)


# ---- procedures ------------------------------------------------------------------------------------------------------------


def take_snapshot(directory: str, producers: ProducerState, *, durable: bool) -> Procedure[None]:
    """Write the state as it is, unless the newest snapshot says the same."""
    if producers.is_snapshot_due:
        offset, entries = producers.end_offset, tuple(producers.entries.values())
        yield WriteFiles(partial(_encoded, directory, offset, entries), durable)
        producers.snapshot_offset = offset


def _encoded(directory: str, offset: int, entries: Sequence[ProducerEntry]) -> list[tuple[str, bytes]]:
    """Both files, the snapshot last: when that is there the other one is."""
    snapshot = encode_snapshot(entries)
    files = [(snapshot_path(directory, offset), snapshot)]
    if any(entry.batches for entry in entries):
        files.insert(0, (batches_path(directory, offset), encode_earlier(entries, crc_of(snapshot))))
    return files


def delete_snapshot(directory: str, offset: int) -> Procedure[None]:
    for path in snapshot_paths(directory, offset):
        yield Unlink(path)


def list_snapshots(directory: str) -> Procedure[list[int]]:
    """Offsets of the snapshot files, ascending."""
    return snapshots_among((yield ListDirectory(directory)))


def snapshots_among(names: Iterable[str], suffix: str = SNAPSHOT_SUFFIX) -> list[int]:
    """Offsets of the snapshot files, or of those beside them (`BATCHES_SUFFIX`), among the names of a directory, ascending."""
    found = [base_offset_of(name) for name in names if name.endswith(suffix)]
    return sorted(offset for offset in found if offset is not None)


def load_newest(directory: str, offsets: Sequence[int], log_start_offset: int, at_or_below: int) -> Procedure[ProducerState]:
    """The state of the newest readable snapshot above the log start and at most at `at_or_below`; an empty state at the log
    start when there is none. One that cannot be read, or is larger than MAX_SNAPSHOT_BYTES, is deleted, as Kafka does: it is
    derived."""
    for offset in reversed(offsets):
        if not log_start_offset < offset <= at_or_below:
            continue
        path = snapshot_path(directory, offset)
        try:
            data = yield ReadFile(path, MAX_SNAPSHOT_BYTES)
            if data is None:
                continue
            entries = decode_snapshot(path, data)
        except (CorruptSnapshotError, OSError) as exc:
            if isinstance(exc, OSError) and exc.errno != errno.EFBIG:
                raise
            LOGGER.warning("%s; it is deleted and an older one is taken", str(exc))
            yield from delete_snapshot(directory, offset)
            continue
        completed = yield from _with_earlier(directory, offset, entries, crc_of(data))
        state = ProducerState(offset, {entry.producer_id: entry for entry in completed or entries})
        state.has_newest_only = completed is None
        state.snapshot_offset = offset
        state.log_start_offset = log_start_offset
        return state
    state = ProducerState(log_start_offset)
    state.log_start_offset = log_start_offset
    return state


def _with_earlier(
    directory: str, offset: int, entries: list[ProducerEntry], snapshot_crc: int
) -> Procedure[list[ProducerEntry] | None]:
    """The entries with all of their batches; None when nothing says which those are."""
    if not any(entry.batches for entry in entries):
        return entries
    path = batches_path(directory, offset)
    try:
        data = yield ReadFile(path, MAX_BATCHES_BYTES)
        return None if data is None else with_earlier(path, data, entries, snapshot_crc)
    except (CorruptSnapshotError, OSError) as exc:
        if isinstance(exc, OSError) and exc.errno != errno.EFBIG:
            raise
        LOGGER.warning("%s; it is passed over", str(exc))
        return None


def replay(producers: ProducerState, views: Sequence[SegmentView], end_offset: int) -> Procedure[None]:
    """Bring the state up to `end_offset` from the batches of `views`, ascending segments that are known to be good."""
    for view in views:
        if view.base_offset >= end_offset:
            break
        _, _, position = yield from view.position_of(max(producers.end_offset, view.base_offset))
        yield from _replay_segment(producers, view, position, end_offset)
    producers.end_offset = max(producers.end_offset, end_offset)


def _replay_segment(producers: ProducerState, view: SegmentView, position: int, end_offset: int) -> Procedure[None]:
    def is_next_marker(header: BatchHeader) -> bool:
        if not producers.end_offset <= header.base_offset < end_offset:
            return False
        if header.is_control and header.producer_id >= 0:
            return True
        producers.replay(header, b"")
        return False

    while True:
        found = yield from view.bytes_from(position).find_batch(is_next_marker)
        if found is None:
            return
        batch = found.data
        if batch is None:
            batch = memoryview((yield Read(view.log, found.position, found.header.size_bytes)))
        producers.replay(found.header, batch)
        position = found.position + found.header.size_bytes


def stray_snapshots(offsets: Sequence[int], base_offsets: Sequence[int]) -> list[int]:
    """Which snapshots belong to no segment. The largest of them is kept if it is not below the last segment: a clean stop
    wrote it at the log end (Kafka: removeStraySnapshots)."""
    bases = set(base_offsets)
    strays = [offset for offset in offsets if offset not in bases]
    if strays and (not base_offsets or strays[-1] >= max(base_offsets)):
        strays.pop()
    return strays
