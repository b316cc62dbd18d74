"""Indexes of a segment that is not scanned: taken over from their files, after a look at what they say of the log's end.

An existing file counts as full. What it says is checked where that costs one read: the last entry of the offset index leads to
a batch, from which headers lead exactly to the end of the log, below the next segment, and one of them ends with its offset.
The last entry of the time index names a batch that has its timestamp, and no batch of those has a larger one. A segment
without an entry in its offset index is small: there every entry of the time index is compared with the batches. Sizes and the
largest timestamp are compared with what `derived.json` keeps of the segment. A contradiction is a CorruptIndexError
(or CorruptRecordError where no batch starts): the caller scans the segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ....protocol.limits import INT32_MAX
from ....protocol.records.batch import BatchHeader
from ....protocol.types import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP
from ..disk.diskops import FileHandle, Map, Procedure, Read
from ..errors import CorruptIndexError
from ..indexes.offset_and_time import OffsetIndex, TimeIndex
from ..segments.segment import LogSegment

MOST_COMPARED: Final = 4096
"""Entries of the time index of a segment whose offset index has none: clean stops write them, one each."""


class Ends(NamedTuple):
    """What the first and the last batch of a segment say."""

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
        raise CorruptIndexError(f"{time_index.path} is empty and the log has timestamps")
    last_marker = segment.transaction_index.last_offset
    if last_marker is not None and last_marker >= walk.next_offset:
        raise CorruptIndexError(
            f"{segment.transaction_index.path}: the last marker is at offset {last_marker}, and the log ends before offset "
            f"{walk.next_offset}"
        )
    limit = segment.base_offset + INT32_MAX + 1
    limit = limit if end_offset is None else min(limit, end_offset)
    if walk.next_offset > limit:
        raise CorruptIndexError(f"{segment.log.path} ends before offset {walk.next_offset}, which is behind {limit}, its limit")
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
                f"{self._offsets.path}: the last entry says that offset {self._indexed} is found from position "
                f"{self._position} on, where no batch starts from which headers lead to the end of a log of {segment.size} "
                "bytes, or none ends with that offset"
            )
        if self._slot < len(self._due):
            timestamp, offset = self._due[self._slot]
            raise self._is_wrong(timestamp, offset, f"the log ends before offset {self.next_offset}")
        if self._earlier is not None:
            yield from self._check_earlier(*self._earlier)
        if times.entries and self._largest > times.tail.key:
            raise self._is_wrong(*times.last_entry, f"a batch behind it has {self._largest}")

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
            f"{self._times.path}: an entry says that timestamp {timestamp} is the largest up to offset {offset}; {why}"
        )


def _has_no_timestamps(segment: LogSegment) -> Procedure[bool]:
    return (yield from segment.records.find_batch(lambda header: header.max_timestamp != NO_TIMESTAMP)) is None
