"""The files in a partition's directory, before anything is read in them (Kafka: LogLoader.removeTempFilesAndCollectSwapFiles,
loadSegmentFiles).

| file | what becomes of it |
|---|---|
| `<20 digits>.log` | a segment |
| `.swap`, `.cleaned` | an interrupted compaction is completed or taken back |
| `.deleted`, `.tmp` | deleted |
| `.index`, `.timeindex`, `.txnindex` without a `.log` | deleted, unless they tell that a `.log` is missing in the middle |
| another `*.log` | the partition is refused |

Indexes of a segment that is not scanned: taken over from their files, after a look at what they say of the log's end.

An existing file counts as full. What it says is checked where that costs one read: the last entry of the offset index leads to
a batch, from which headers lead exactly to the end of the log, below the next segment, and one of them ends with its offset.
The last entry of the time index names a batch that has its timestamp, and no batch of those has a larger one. A segment
without an entry in its offset index is small: there every entry of the time index is compared with the batches. Sizes and the
largest timestamp are compared with what `derived.json` keeps of the segment. A contradiction is a CorruptIndexError
(or CorruptRecordError where no batch starts): the caller scans the segment.

What `leader-epoch-checkpoint` says, compared with batches of segments that are not scanned: each batch carries its epoch.

The check reads the last batch of each segment, and the batches on both sides of each offset at which an epoch starts. An epoch
that starts at the log's end has no batch yet. Batches without an epoch (-1), and those below the log start, say nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import attrs

from ....protocol.errors import CorruptRecordError
from ....protocol.limits import INT32_MAX
from ....protocol.records.batch import BatchHeader
from ....protocol.types import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP
from ...config import LogConfig
from ..cleaner.swap import complete_swaps
from ..disk.checkpoints import maybe_read
from ..disk.diskops import FileHandle, Map, Procedure, Read, drive
from ..disk.filesystem import FileSystem
from ..disk.paths import DELETED_SUFFIX, INDEX_SUFFIXES, LOG_SUFFIX, TEMPORARY_SUFFIX, base_offset_of, segment_file
from ..errors import CheckpointError, CorruptIndexError, StorageError
from ..indexes.file_records import whole_file
from ..indexes.index import OffsetIndex, TimeIndex
from ..log.gaps import FILE_NAME as GAPS_FILE
from ..log.gaps import OffsetGap, gap_at, read_gaps
from ..log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from ..log.leader_epochs import LeaderEpochs, decode_leader_epochs
from ..segments.segment import LogSegment, LogSegments

LOGGER: Final = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False)
class LoadedFiles:
    """Segments whose indexes are not looked at yet, and what the small files remember."""

    segments: LogSegments
    epochs: LeaderEpochs
    gaps: tuple[OffsetGap, ...]
    orphans: Sequence[str]
    """Paths of indexes without a log; still there."""
    traces: Sequence[tuple[int, str]]
    """Base offset and name of the indexes without a log. (A producer snapshot tells nothing: a clean stop leaves one too.)"""

    def check_hole(self, segment: LogSegment, next_offset: int, log_start_offset: int) -> None:
        """Raises StorageError when files tell of a segment between this one, whose offsets end at `next_offset`, and the one
        behind it. Without such files missing offsets are a gap as compaction and truncation leave them. Below the log start
        offset nothing is missed: a power cut takes some of the renames back by which retention took segments out."""
        following = self.segments.higher(segment.base_offset)
        if following is None or next_offset >= following.base_offset or gap_at(self.gaps, next_offset) is not None:
            return
        if following.base_offset <= log_start_offset:
            return
        names = [name for offset, name in self.traces if next_offset <= offset < following.base_offset]
        if names:
            missing = segment_file(base_offset_of(names[0]) or 0, LOG_SUFFIX)
            raise StorageError(
                f"{segment.log.path} ends before offset {next_offset} and the next file is {following.log.path}, but "
                f"{', '.join(names)} belong to a segment between them: {missing} is missing. Put it back, or delete "
                "these files to continue without its records"
            )


def load_files(fs: FileSystem, directory: str, config: LogConfig, created_ms: int) -> LoadedFiles:
    """Look at the names, delete leftovers. Raises StorageError when the files cannot be a log's, OSError."""
    complete_swaps(fs, directory)
    _finish_taking_out(fs, directory)
    names = fs.list_directory(directory)
    if any(name.endswith(DELETED_SUFFIX) for name in names):
        fs.sync_directory(directory)  # a renamed file must not get its old name back when its neighbour is gone for good
    logs = {name for name in names if name.endswith(LOG_SUFFIX)}
    orphans, traces = [], []
    for name in names:
        if name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
            LOGGER.info("deleting the leftover %s/%s", directory, name)
            fs.unlink(f"{directory}/{name}")
            continue
        stem, _, suffix = name.partition(".")
        if f"{stem}{LOG_SUFFIX}" in logs or f".{suffix}" not in INDEX_SUFFIXES:
            continue
        orphans.append(f"{directory}/{name}")
        base_offset = base_offset_of(name)
        if base_offset is not None:
            traces.append((base_offset, name))
    segments = LogSegments(_segment(fs, directory, name, config, created_ms) for name in sorted(logs))
    return LoadedFiles(segments, _load_leader_epochs(fs, directory), _load_gaps(fs, directory), orphans, traces)


def _finish_taking_out(fs: FileSystem, directory: str) -> None:
    """A segment whose log is renamed to `.deleted` is out; a power cut can have left other files of it their names. They go
    before the `.deleted` does: alone they would tell of a missing log."""
    listed = fs.list_directory(directory)
    taken_out = {name.partition(".")[0] for name in listed if name.endswith(DELETED_SUFFIX) and LOG_SUFFIX + "." in name}
    if not taken_out:
        return
    names = set(listed)
    left = [
        name
        for stem in taken_out
        if stem + LOG_SUFFIX not in names
        for name in (f"{stem}{suffix}" for suffix in INDEX_SUFFIXES)
        if name in names
    ]
    for name in left:
        fs.unlink(f"{directory}/{name}")


def _segment(fs: FileSystem, directory: str, name: str, config: LogConfig, created_ms: int) -> LogSegment:
    base_offset = base_offset_of(name)
    if base_offset is None or name != segment_file(base_offset, LOG_SUFFIX):
        raise StorageError(f"{directory}/{name} is not named after a base offset of 20 digits. Move it away")
    segment = LogSegment.at(directory, base_offset, config, created_ms=created_ms)
    size = fs.file_size(segment.log.path)
    if size is None or fs.is_directory(segment.log.path):
        raise StorageError(f"{segment.log.path} is not a file. Move it away")
    whole_file(segment.log, size)
    segment.size = size
    return segment


def _load_leader_epochs(fs: FileSystem, directory: str) -> LeaderEpochs:
    try:
        return maybe_read(fs, f"{directory}/{LEADER_EPOCH_FILE}", decode_leader_epochs) or LeaderEpochs()
    except (CheckpointError, ValueError) as exc:
        LOGGER.warning("leader epochs lost, reading them from the batches: %s", str(exc))
        return LeaderEpochs()


def _load_gaps(fs: FileSystem, directory: str) -> tuple[OffsetGap, ...]:
    try:
        return read_gaps(fs, directory)
    except CheckpointError as exc:
        kept = f"{directory}/{GAPS_FILE}.corrupt"
        LOGGER.warning("list of gaps lost, so readers skip them without notice. The file is kept as %s: %s", kept, str(exc))
        fs.rename(f"{directory}/{GAPS_FILE}", kept)
        return ()


MOST_COMPARED: Final = 4096
"""Entries of the time index of a segment whose offset index has none: clean stops write them, one each."""


class Ends(NamedTuple):
    """The facts in the first and the last batch of a segment."""

    first_timestamp: int | None
    """The largest timestamp of the first batch; None when it was not looked at, or is not there."""
    next_offset: int
    last_epoch: int = NO_PARTITION_LEADER_EPOCH
    """Leader epoch of the last batch; -1 when it has none, or is not there."""
    first: tuple[int, int] | None = None
    """Base offset and leader epoch of the first batch; None as for `first_timestamp`."""


def load_indexes(segment: LogSegment, end_offset: int | None) -> Procedure[Ends]:
    """Take the indexes over; answers what was seen of the segment's batches. Offsets lie below `end_offset`."""
    size = segment.config.segment_index_bytes
    offset_index = yield from OffsetIndex.load(segment.offset_index.path, segment.base_offset, size)
    time_index = yield from TimeIndex.load(segment.time_index.path, segment.base_offset, size)
    yield from segment.transaction_index.load()
    if offset_index is None or time_index is None:
        raise CorruptIndexError(f"{segment.log.path}: an index file is missing")
    walk = _Walk(segment, offset_index, time_index)
    yield from walk.run()
    if segment.size and not time_index.entries and not (yield from _has_no_timestamps(segment)):
        raise CorruptIndexError(f"{time_index.path} is empty but the log has timestamps")
    last_marker = segment.transaction_index.last_offset
    if last_marker is not None and last_marker >= walk.next_offset:
        raise CorruptIndexError(
            f"{segment.transaction_index.path}: the last marker is at offset {last_marker}, and the log ends before offset "
            f"{walk.next_offset}"
        )
    limit = segment.base_offset + INT32_MAX + 1
    limit = limit if end_offset is None else min(limit, end_offset)
    if walk.next_offset > limit:
        raise CorruptIndexError(f"{segment.log.path} ends before offset {walk.next_offset}, which is after its limit {limit}")
    segment.offset_index, segment.time_index = offset_index, time_index
    segment.max_timestamp, segment.offset_of_max_timestamp = time_index.last_entry
    return Ends(walk.first_timestamp, walk.next_offset, walk.last_epoch, walk.first)


class _Walk:
    """The headers from the last entry of the offset index on (from the start without any), compared with both indexes."""

    def __init__(self, segment: LogSegment, offsets: OffsetIndex, times: TimeIndex) -> None:
        self._segment = segment
        self._offsets = offsets
        self._times = times
        self._indexed: int | None = offsets.tail.key if offsets.entries else None
        self._position = offsets.tail.value if offsets.entries else 0
        self._is_led_to = not offsets.entries
        """Whether a batch ends with the offset of the last entry."""
        self._is_first = True
        self._due: Sequence[tuple[int, int]] = [times.last_entry] if times.entries else []
        """Entries of the time index whose batches are still to come."""
        self._earlier: tuple[int, int] | None = None
        """The last entry of the time index, when it names a batch before the walk."""
        self._slot = 0
        self._largest = NO_TIMESTAMP
        self.next_offset = segment.base_offset
        self.first_timestamp: int | None = None
        self.first: tuple[int, int] | None = None
        self.last_epoch = NO_PARTITION_LEADER_EPOCH

    def run(self) -> Procedure[None]:
        """Raises CorruptIndexError for what contradicts the headers, CorruptRecordError where no batch starts."""
        segment, times = self._segment, self._times
        stop = self._position
        if not self._offsets.entries and times.entries > 1:
            self._due = yield from self._read_times()
        if 0 <= self._position < segment.size:
            stop = yield from segment.view().bytes_from(self._position).visit_headers(self._see)
        if stop != segment.size or (self._is_first and segment.size) or not self._is_led_to:
            raise CorruptIndexError(
                f"{self._offsets.path}: the last entry puts offset {self._indexed} at position {self._position}, "
                f"where no batch starts from which headers lead to the end of a log of {segment.size} bytes, or none "
                "ends with that offset"
            )
        if self._slot < len(self._due):
            timestamp, offset = self._due[self._slot]
            raise self._is_wrong(timestamp, offset, f"the log ends before offset {self.next_offset}")
        if self._earlier is not None:
            yield from self._check_earlier(*self._earlier)
        if times.entries and self._largest > times.tail.key:
            raise self._is_wrong(*times.last_entry, f"a batch after it has {self._largest}")

    def _see(self, header: BatchHeader, at: int) -> None:
        if at == 0:
            self.first_timestamp = header.max_timestamp
            self.first = header.base_offset, header.partition_leader_epoch
        if self._is_first and self._indexed is not None and header.base_offset > self._indexed:
            return
        if header.base_offset < self.next_offset or header.last_offset_delta < 0:
            raise CorruptIndexError(
                f"{self._segment.log.path}: offset {header.base_offset} follows {self.next_offset - 1}, so it or an index is "
                "damaged"
            )
        if self._is_first and self._position and self._due and self._due[0][1] < header.base_offset:
            self._earlier, self._due = self._due[0], ()
        self._is_first = False
        self._is_led_to = self._is_led_to or header.last_offset == self._indexed
        self.next_offset = header.next_offset
        self.last_epoch = header.partition_leader_epoch
        while self._slot < len(self._due) and self._due[self._slot][1] <= header.last_offset:
            timestamp, offset = self._due[self._slot]
            if not header.base_offset <= offset or timestamp != header.max_timestamp or timestamp <= self._largest:
                raise self._is_wrong(timestamp, offset, f"the batch that ends there has {header.max_timestamp}")
            self._slot += 1
        self._largest = max(self._largest, header.max_timestamp)

    def _read_times(self) -> Procedure[list[tuple[int, int]]]:
        times = self._times
        if times.entries > MOST_COMPARED:
            raise CorruptIndexError(f"{times.path} has {times.entries} entries, and {self._offsets.path} has none")
        data = yield Read(FileHandle(path=times.path), 0, times.size_in_bytes)
        return [times.entry_at(data, slot) for slot in range(len(data) // times.entry_size)]

    def _check_earlier(self, timestamp: int, offset: int) -> Procedure[None]:
        """The last entry of the time index names a batch before the last entry of the offset index."""
        offsets = self._offsets
        buffer = yield Map(offsets, offsets.size_in_bytes)
        _, _, position = offsets.lookup_in(buffer, offsets.entries, offset)
        found = None
        if position >= 0:
            area = self._segment.view().bytes_from(position)
            found = yield from area.find_batch(lambda header: header.last_offset >= offset)
        if found is None or not found.header.base_offset <= offset or found.header.max_timestamp != timestamp:
            raise self._is_wrong(timestamp, offset, "the batch at that offset has another one")

    def _is_wrong(self, timestamp: int, offset: int, why: str) -> CorruptIndexError:
        return CorruptIndexError(
            f"{self._times.path}: an entry claims that timestamp {timestamp} is the largest up to offset {offset}; {why}"
        )


def _has_no_timestamps(segment: LogSegment) -> Procedure[bool]:
    return (yield from segment.records.find_batch(lambda header: header.max_timestamp != NO_TIMESTAMP)) is None


MOST_STARTS: Final = 64
"""The newest epochs whose starts are looked up."""


def contradicted_epoch(
    fs: FileSystem, epochs: LeaderEpochs, segments: Sequence[LogSegment], ends: Mapping[int, Ends], log_start_offset: int
) -> str | None:
    """Return why the epochs cannot be true, None when no batch of these segments contradicts them. Raises OSError."""
    for segment in segments:
        _, next_offset, epoch, _ = ends[segment.base_offset]
        if segment.size and next_offset > log_start_offset and (why := _contradiction(epochs, next_offset - 1, epoch)):
            return why
    starts = [entry.start_offset for entry in epochs.entries[-MOST_STARTS:]]
    first = ends[segments[0].base_offset].first if segments else None
    if first is not None and starts and starts[0] <= segments[0].base_offset:  # the batch there was seen on the way
        del starts[0]
        if first[0] >= log_start_offset and (why := _contradiction(epochs, *first)):
            return why
    for start in starts:
        for header in _headers_around(fs, segments, start):
            if header.base_offset < start <= header.last_offset:
                return f"an epoch starts at offset {start}, inside the batch of {header.base_offset} to {header.last_offset}"
            if header.base_offset >= log_start_offset and (
                why := _contradiction(epochs, header.base_offset, header.partition_leader_epoch)
            ):
                return why
    return None


def _contradiction(epochs: LeaderEpochs, offset: int, epoch: int) -> str | None:
    known = epochs.epoch_for_offset(offset)
    if epoch in (NO_PARTITION_LEADER_EPOCH, known):
        return None
    return f"it has {'no epoch' if known is None else f'epoch {known}'} for offset {offset}, its batch has {epoch}"


def _headers_around(fs: FileSystem, segments: Sequence[LogSegment], offset: int) -> Iterator[BatchHeader]:
    """Of the batch that holds the offset before this one, and of the first batch from this one on in the same segment."""
    for wanted in (offset - 1, offset):
        segment = next((each for each in reversed(segments) if each.base_offset <= wanted), None)
        if segment is None or not segment.size:
            continue
        try:
            found = drive(fs, segment.view().translate_offset(wanted))
        except CorruptRecordError:
            continue  # whoever reads there is told
        finally:
            segment.offset_index.buffer = None
        if found is not None:
            yield found.header
