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
a producer survives in it; those before stand in a file of ours beside it (see `encode_batches`). It is derived: one that
cannot be read is passed over for an older one, and the log behind that is replayed; without any the log is replayed from its
start.

What a producer snapshot leaves out: `<offset>.batches` beside `<offset>.snapshot`. A file of ours; Kafka ignores the name.

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

What a log knew of its producers at an offset: from a snapshot, what lies beside it, and the log itself.

A snapshot that has no `.batches` beside it (Kafka wrote it) names the newest batch of each producer only. Then the headers of
the last TAIL_BYTES before it are looked through for those before: a client's five requests in flight have just been sent.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from struct import Struct
from typing import Final

from ....protocol.errors import CorruptRecordError
from ....protocol.limits import MIB
from ....protocol.records.batch import BatchHeader, crc32c
from ..disk.diskops import ListDirectory, Procedure, Read, ReadFile, Unlink, WriteFiles
from ..disk.paths import BATCHES_SUFFIX, SNAPSHOT_SUFFIX, SNAPSHOT_SUFFIXES, base_offset_of, segment_file
from ..errors import CorruptSnapshotError, FileTooLargeError
from ..segments.segment_view import SegmentView
from .producer_cursor import CACHED_BATCHES, BatchMetadata, ProducerEntry
from .producer_state import ProducerState

LOGGER: Final = logging.getLogger(__name__)

VERSION: Final = 1

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
        raise CorruptSnapshotError(f"{path} should have {count} entries, but has {len(covered) - _COUNT.size} bytes of them")
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
    start when there is none. One that cannot be read, or is too large, is deleted, as Kafka does: it is derived."""
    for offset in reversed(offsets):
        if not log_start_offset < offset <= at_or_below:
            continue
        path = snapshot_path(directory, offset)
        try:
            data = yield ReadFile(path)
            if data is None:
                continue
            entries = decode_snapshot(path, data)
        except (CorruptSnapshotError, FileTooLargeError) as exc:
            LOGGER.warning("%s: deleted, using an older one", str(exc))
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
        data = yield ReadFile(path)
        return None if data is None else with_earlier(path, data, entries, snapshot_crc)
    except (CorruptSnapshotError, FileTooLargeError) as exc:
        LOGGER.warning("%s: skipped", str(exc))
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
    """Return the snapshots that belong to no segment. The largest one stays, and is left out, if it is not below the
    last segment: a clean stop wrote it at the log end (Kafka: removeStraySnapshots)."""
    bases = set(base_offsets)
    strays = [offset for offset in offsets if offset not in bases]
    if strays and (not base_offsets or strays[-1] >= max(base_offsets)):
        strays.pop()
    return strays


BATCHES_VERSION: Final = 0

_HEAD: Final = Struct(">Ii")
_BATCH: Final = Struct(">qiqiq")


def batches_path(directory: str, offset: int) -> str:
    return f"{directory}/{segment_file(offset, BATCHES_SUFFIX)}"


def encode_earlier(entries: Iterable[ProducerEntry], snapshot_crc: int) -> bytes:
    packed = [_BATCH.pack(entry.producer_id, *batch) for entry in entries for batch in entry.batches[:-1]]
    return seal(BATCHES_VERSION, _HEAD.pack(snapshot_crc, len(packed)) + b"".join(packed))


def decode_earlier(path: str, data: bytes) -> tuple[int, dict[int, list[BatchMetadata]]]:
    """The CRC of the snapshot that it belongs to, and batches by producer. Raises CorruptSnapshotError."""
    covered = unseal(path, data, BATCHES_VERSION, _HEAD.size)
    snapshot_crc, count = _HEAD.unpack_from(covered)
    if len(covered) != _HEAD.size + count * _BATCH.size:
        raise CorruptSnapshotError(f"{path} should have {count} batches, but has {len(covered) - _HEAD.size} bytes of them")
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
        raise CorruptSnapshotError(f"{path} has batches of producer {min(earlier)}, which the snapshot does not have")
    return completed


_PREFIX: Final = Struct(">hI")


def seal(version: int, content: bytes) -> bytes:
    """The file with this content."""
    return _PREFIX.pack(version, crc32c(content)) + content


def crc_of(data: bytes) -> int:
    """The CRC that a file carries."""
    _, crc = _PREFIX.unpack_from(data)
    return int(crc)


def unseal(path: str, data: bytes, version: int, smallest: int) -> memoryview:
    """The content, of at least `smallest` bytes. Raises CorruptSnapshotError."""
    if len(data) < _PREFIX.size + smallest:
        raise CorruptSnapshotError(f"{path} has {len(data)} bytes, the smallest of its kind has {_PREFIX.size + smallest}")
    found, crc = _PREFIX.unpack_from(data)
    content = memoryview(data)[_PREFIX.size :]
    if found != version:
        raise CorruptSnapshotError(f"{path} has version {found}, {version} is known")
    if (computed := crc32c(content)) != crc:
        raise CorruptSnapshotError(f"{path} carries CRC {crc:#010x}, its bytes have {computed:#010x}")
    return content


TAIL_BYTES: Final = 4 * MIB
"""Holds what a client with default sizes has in flight."""


def producers_at(
    directory: str, snapshots: Sequence[int], views: Sequence[SegmentView], log_start_offset: int, offset: int
) -> Procedure[ProducerState]:
    """The state at an offset: the newest snapshot that is not above it, and the batches since then. `views`: ascending segments
    that are known to be good. Raises CorruptRecordError."""
    producers = yield from load_newest(directory, snapshots, log_start_offset, offset)
    if producers.has_newest_only:
        yield from remember_earlier(producers, views)
    if producers.end_offset < offset:
        yield from replay(producers, views, offset)
    return producers


def remember_earlier(producers: ProducerState, views: Sequence[SegmentView]) -> Procedure[None]:
    """Let the entries have the batches before their newest, as far as the end of the log before the snapshot shows them. What
    cannot be read there is passed over: nobody else needs it now."""
    entries = producers.entries
    found: dict[int, deque[BatchMetadata]] = {}

    def see(header: BatchHeader, _: int) -> None:
        entry = entries.get(header.producer_id)
        if (
            entry is None
            or header.is_control
            or header.producer_epoch != entry.epoch
            or not entry.batches
            or not producers.log_start_offset <= header.last_offset < entry.batches[-1].first_offset
        ):
            return
        batch = BatchMetadata(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
        found.setdefault(header.producer_id, deque(maxlen=CACHED_BATCHES - 1)).append(batch)

    left = TAIL_BYTES
    tail: list[tuple[SegmentView, int]] = []
    for view in reversed([view for view in views if view.base_offset < producers.end_offset]):
        if left <= 0:
            break
        tail.append((view, (yield from view.position_before(view.size - left))))
        left -= view.size
    for view, position in reversed(tail):
        try:
            yield from view.bytes_from(position).visit_headers(see)
        except (CorruptRecordError, OSError) as exc:
            LOGGER.warning("%s: retries of batches from later producers are not recognized", str(exc))
    for producer_id, batches in found.items():
        entry = entries[producer_id]
        entries[producer_id] = entry._replace(batches=(*batches, *entry.batches))
    producers.has_newest_only = False
