"""A reader's view of a segment: immutable, and valid until the segment's files are deleted. Lookups by offset and by
timestamp run on it, through the indexes as they were then. The segment makes it, see `segment`.

The plain records of a batch and its checksum, without keeping anybody waiting: what is small is done on the spot, what is
large is an operation (`diskops.Compute`).

Keeps lower bounds of the timestamps after an offset, which the time index lacks. They are in memory only.

A segment is a row of stretches of offsets, and of each a bound is known that no timestamp of its records lies below. The log's
owner adds a stretch with every index entry, from what is known of batches that are appended. Of what was written before the log
was opened nothing is known: whoever wants to know looks once (`lookups.time_range`), and the stretch gets its bound then. Of
records without a timestamp it says nothing. A segment has about MOST_STRETCHES: where there would be more, neighbours become
one, and while there are not too many for that, none of which something is known and none of which nothing is.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, cast

import attrs

from ....protocol.errors import CorruptRecordError, RequestError
from ....protocol.limits import INT64_MAX, KIB, MIB
from ....protocol.records.batch import COMPRESSION_MASK, RECORD_BATCH_OVERHEAD, BatchHeader, check_batch
from ....protocol.records.record import NOT_FOUND, FoundRecord, first_record_steps
from ....protocol.records.steps import UNTOLD_STEPS
from ....protocol.records.unpacking import copied, drop, is_large, measured, records_data, unpack, unpack_at_once
from ....protocol.types import NO_TIMESTAMP, CompressionType, TimestampAndOffset
from ..disk.diskops import Compute, FileHandle, Procedure
from ..indexes.file_records import FileSlice, FoundBatch, damaged_header, position_behind_damage, position_behind_unmatched
from ..indexes.index import OffsetIndex, TimeIndex
from ..indexes.transaction_index import AbortedTxn, TransactionIndex

UNTOLD_RECORDS: Final = 4 * UNTOLD_STEPS
"""Records of a batch that are looked at for their time before others have to be told."""


class SegmentView(NamedTuple):
    """A segment as it was when a snapshot was taken: file, size, and how many entries its indexes had."""

    base_offset: int
    log: FileHandle
    size: int
    max_timestamp: int
    offset_index: OffsetIndex
    offset_entries: int
    time_index: TimeIndex
    time_entries: int
    transaction_index: TransactionIndex
    transaction_entries: int
    least_timestamps: LeastTimestamps

    @property
    def least_timestamp(self) -> int:
        """No record that has a timestamp has a smaller one; -1 where that is not known, or none has one."""
        return told(self.least_timestamps.least)

    def entry_of(self, offset: int) -> Procedure[tuple[int, int, int]]:
        """(slot, offset, position) of the offset index's greatest entry <= `offset`, as it stands there; for none (-1, base
        offset, 0)."""
        entries = self.offset_entries
        if not entries:
            return -1, self.base_offset, 0
        index = self.offset_index
        buffer = yield from index.mapped(entries)
        return index.lookup_in(buffer, entries, offset)

    def position_of(self, offset: int) -> Procedure[tuple[int, int, int]]:
        """`entry_of`, unless it is damaged: then (-1, base offset, 0)."""
        slot, indexed, position = yield from self.entry_of(offset)
        if slot >= 0 and not (yield from self._is_true(indexed, position)):
            return -1, self.base_offset, 0
        return slot, indexed, position

    def _is_true(self, offset: int, position: int) -> Procedure[bool]:
        """Return whether an entry of the offset index points to a batch that it can mean. (Kafka writes the last offset of all
        batches that came with the one at the position.)"""
        header: BatchHeader | None = None
        if 0 <= position < self.size:
            area = self.bytes_from(position)
            with contextlib.suppress(CorruptRecordError):
                found = yield from area.find_batch(lambda header: True)
                header = None if found is None else found.header
            if header is None:
                header = yield from damaged_header(area)  # it is the log that is damaged there
        is_true = header is not None and header.base_offset <= offset
        if not is_true:
            self.offset_index.doubt()
        return is_true

    def entry_behind(self, position: int) -> Procedure[tuple[int, int] | None]:
        """(offset, position) of the offset index's first entry at or behind `position`, as it stands there; None for none."""
        entries = self.offset_entries
        if not entries:
            return None
        index = self.offset_index
        buffer = yield from index.mapped(entries)
        _, slot = index.search(buffer, entries, position, by_value=True)
        return None if slot < 0 else index.entry_at(buffer, slot)

    def offset_behind(self, position: int) -> Procedure[int | None]:
        """An offset that certainly lies behind all bytes before `position`, None when the index does not say."""
        entry = yield from self.entry_behind(position)
        if entry is None or entry[1] < position or not (yield from self._is_true(*entry)):
            return None
        return entry[0]

    def position_before(self, position: int) -> Procedure[int]:
        """Return the start of a batch at or before a position; 0 when the index has none."""
        entries = self.offset_entries
        if not entries or position <= 0:
            return 0
        index = self.offset_index
        buffer = yield from index.mapped(entries)
        slot, _ = index.search(buffer, entries, position, by_value=True)
        return 0 if slot < 0 else index.entry_at(buffer, slot)[1]

    def first_offset_of(self, timestamp: int) -> Procedure[tuple[int, int, int]]:
        """(slot, timestamp, offset) of the time index's greatest entry <= `timestamp`; (-1, -1, base offset) for none."""
        entries = self.time_entries
        if not entries:
            return -1, NO_TIMESTAMP, self.base_offset
        index = self.time_index
        buffer = yield from index.mapped(entries)
        return index.lookup_in(buffer, entries, timestamp)

    def bytes_from(self, position: int, end: int | None = None) -> FileSlice:
        return FileSlice(self.log, position, self.size if end is None else min(end, self.size))

    def aborted_transactions(self) -> Procedure[list[AbortedTxn]]:
        """The entries of the transaction index, in the order of their markers."""
        return (yield from self.transaction_index.read_entries(self.transaction_entries))

    def aborted_reaching(self, offset: int) -> Procedure[Iterator[AbortedTxn]]:
        """Those whose marker is at `offset` or behind it, and maybe some before them."""
        return (yield from self.transaction_index.read_reaching(offset, self.transaction_entries))

    def translate_offset(self, offset: int) -> Procedure[FoundBatch | None]:
        """The first batch whose last offset is >= `offset`: it starts a whole batch and may hold smaller offsets.

        An index entry that leads to a batch behind its own offset, or to none, is damaged, and what lies before would be
        missed: the segment is looked through from its start then. A batch whose length or magic is damaged is passed over.
        """
        indexed, position = self.base_offset, 0
        if entries := self.offset_entries:
            offsets = self.offset_index
            buffer = offsets.shown(entries) or (yield from offsets.mapped(entries))
            _, indexed, position = offsets.lookup_in(buffer, entries, offset)
        found = None
        if 0 <= position < self.size:
            try:
                found = yield from self.find_reaching(position, offset)
            except CorruptRecordError:
                if not position:
                    raise
        if position and (found is None or (found.position == position and found.header.base_offset > indexed)):
            found = yield from self.find_reaching(0, offset)
            if found is not None:
                self.offset_index.doubt()
        return found

    def find_reaching(self, position: int, offset: int) -> Procedure[FoundBatch | None]:
        """The first batch from `position` on whose last offset is >= `offset`, passing over those whose length or magic is
        damaged. Raises CorruptRecordError where the offset may lie in one of them."""
        try:
            return (yield from self.bytes_from(position).find_reaching(offset))
        except CorruptRecordError:
            behind = yield from position_behind_damage(self.bytes_from(position), offset)
            if behind is None:
                raise
        return (yield from self.bytes_from(behind).find_reaching(offset))

    def find_matching(self, position: int, end: int | None, offset: int, timestamp: int) -> Procedure[FoundBatch | None]:
        """The first batch in [position, end) with a last offset and a largest timestamp of at least these, passing over those
        whose length or magic is damaged. Raises CorruptRecordError where the batch may be one of them."""
        area = self.bytes_from(position, end)
        try:
            return (yield from area.find_reaching(offset, timestamp))
        except CorruptRecordError:
            behind = yield from position_behind_unmatched(area, offset, timestamp)
            if behind is None:
                raise
        return (yield from self.bytes_from(behind, end).find_reaching(offset, timestamp))

    def find_offset_by_timestamp(
        self, timestamp: int, starting_offset: int, *, max_bytes: int, end: int | None = None, check_crcs: bool = False
    ) -> Procedure[TimestampAndOffset | None]:
        """The first record with a timestamp >= `timestamp` and an offset >= `starting_offset`, before position `end`.

        Through both indexes to a position, then over headers to batches that can hold it.
        """
        indexed, position = self.base_offset, 0
        if entries := self.time_entries:
            times = self.time_index
            buffer = times.shown(entries) or (yield from times.mapped(entries))
            _, _, indexed = times.lookup_in(buffer, entries, timestamp)
        if entries := self.offset_entries:
            offsets = self.offset_index
            buffer = offsets.shown(entries) or (yield from offsets.mapped(entries))
            _, _, position = offsets.lookup_in(buffer, entries, max(indexed, starting_offset))
        if 0 < position < self.size:
            try:
                return (
                    yield from self.scan_for_timestamp(
                        timestamp, starting_offset, position, end, max_bytes=max_bytes, check_crcs=check_crcs
                    )
                )
            except CorruptRecordError:
                """Of the log, or of what the entry leads to: from the start it is the log's."""
        found = yield from self.scan_for_timestamp(
            timestamp, starting_offset, 0, end, max_bytes=max_bytes, check_crcs=check_crcs
        )
        if position:
            self.offset_index.doubt()
        return found

    def scan_for_timestamp(
        self,
        timestamp: int,
        starting_offset: int,
        position: int,
        end: int | None,
        *,
        max_bytes: int,
        check_crcs: bool = False,
    ) -> Procedure[TimestampAndOffset | None]:
        """`find_offset_by_timestamp` from a position that both indexes gave. With `check_crcs` it raises CorruptRecordError for
        a damaged batch among those that it looks into."""
        while True:
            found = yield from self.find_matching(position, end, starting_offset, timestamp)
            if found is None:
                return None
            header, at, batch = found
            if batch is None:
                batch = yield from self.bytes_from(at, end).read_batch(found)
            if check_crcs:
                yield from checked(batch, header)
            data = unpacked_small(batch, header, max_bytes)
            if data is None:
                hit = yield from _first_in(batch, header, timestamp, starting_offset, max_bytes)
            else:
                for found_record in first_record_steps(data, header, timestamp=timestamp, min_offset=starting_offset):
                    if found_record is None:
                        yield None
                    else:
                        hit = found_record
            if hit is not NOT_FOUND:
                if hit.offset - header.base_offset > UNTOLD_RECORDS:
                    yield None
                return TimestampAndOffset(hit.timestamp, hit.offset, header.partition_leader_epoch)
            position = at + header.size_bytes


def _first_in(
    batch: memoryview, header: BatchHeader, timestamp: int, min_offset: int, max_bytes: int
) -> Procedure[FoundRecord]:
    """The first record with at least both of these of a batch that can hold one; NOT_FOUND for none."""
    data = yield from unpacked(batch, header, max_bytes)
    try:
        for found in first_record_steps(data, header, timestamp=timestamp, min_offset=min_offset):
            if found is None:
                yield None
    except RequestError:
        yield from dropped(data)
        raise
    if is_large(data):
        yield from dropped(data)
    assert found is not None
    return found


LIGHT_BYTES: Final = 512 * KIB
"""Unpacked on the spot: gzip, the slowest, takes 1 ms for them."""
LIGHT_PACKED_BYTES: Final = 128 * KIB
BYTES_PER_PAUSE: Final = 128 * KIB
CHECKED_AT_ONCE_BYTES: Final = 8 * MIB
"""Checked on the spot, at 10 GB/s."""


def checked(batch: memoryview, header: BatchHeader) -> Procedure[None]:
    """`check_batch`, as an operation where the batch is large."""
    if len(batch) <= CHECKED_AT_ONCE_BYTES:
        check_batch(batch, header)
    else:
        yield Compute(check_batch, (batch, header))


def unpacked_small(batch: memoryview, header: BatchHeader, max_bytes: int) -> bytes | None:
    """Return the result of `unpacked` where that is only a copy, else None."""
    if header.attributes & COMPRESSION_MASK or len(batch) > MIB:
        return None
    return records_data(batch, header, max_bytes)


def unpacked(batch: memoryview, header: BatchHeader, max_bytes: int) -> Procedure[bytes]:
    """`records_data`, as operations where it takes long. Give its answer to `dropped` once it is used up."""
    records = batch[RECORD_BATCH_OVERHEAD:]
    compression_type = header.compression_type
    if header.records_count <= 0 or (compression_type == CompressionType.NONE and len(records) <= MIB):
        return records_data(batch, header, max_bytes)
    if compression_type == CompressionType.NONE:
        for data in copied(records):
            if data is not None:
                return data
            yield None
    for packed in measured(compression_type, records):
        if packed is None:
            yield None
            continue
        if packed.likely_bytes <= LIGHT_BYTES and len(records) <= LIGHT_PACKED_BYTES:
            for _ in range(packed.likely_bytes // BYTES_PER_PAUSE):
                yield None
            data = unpack_at_once(packed, min(LIGHT_BYTES, max_bytes))
            if data is not None:
                return data
        steps = unpack(packed, max_bytes)
        data = None
        while data is None:
            data = cast("bytes | None", (yield Compute(next, (steps,))))
        return data
    raise AssertionError(header)


def dropped(data: bytes) -> Procedure[None]:
    """Give back what `unpacked` answered."""
    if is_large(data):
        yield Compute(drop, (data,))


NOT_KNOWN: Final = -INT64_MAX - 1
"""Nobody has looked."""
ANYTHING: Final = NOT_KNOWN + 1
"""Somebody has, and could not read the records."""
NOTHING: Final = INT64_MAX
"""There is no record, or none with a timestamp."""
MOST_STRETCHES: Final = 256
_NONE: Final = array("q")


def told(least: int) -> int:
    """A bound as others are told it: -1 where it is not known, or there is no timestamp."""
    return NO_TIMESTAMP if least < 0 or least == NOTHING else least


class Stretch(NamedTuple):
    """Offsets from `start` up to `end`, exclusive, and the bound of their timestamps."""

    start: int
    end: int
    least: int

    @property
    def is_known(self) -> bool:
        return self.least != NOT_KNOWN


@attrs.define(eq=False, repr=False)
class LeastTimestamps:
    """The stretches of one segment. Owner: the segment; readers that have looked tell it what they found."""

    since: int = NOT_KNOWN
    """The bound of what lies behind the last stretch."""
    _ends: array[int] = _NONE
    _leasts: array[int] = _NONE
    """Most segments of most logs have no index entry."""
    _most: int = MOST_STRETCHES
    _per_stretch: int = 1
    _merged: int = 0

    def __len__(self) -> int:
        return len(self._ends) + 1

    @property
    def least(self) -> int:
        """The bound for the whole segment."""
        return min(self.since, min(self._leasts, default=NOTHING))

    def nothing_yet(self) -> None:
        """The segment is new and empty."""
        self.since = NOTHING

    def add(self, stretches: Iterable[tuple[int, int]]) -> None:
        """(end offset, bound) of what was appended."""
        if self._ends is _NONE:
            self._ends, self._leasts = array("q"), array("q")
        ends, leasts = self._ends, self._leasts
        for end, least in stretches:
            if 0 < self._merged < self._per_stretch and (leasts[-1] == NOT_KNOWN) == (least == NOT_KNOWN):
                ends[-1], leasts[-1] = end, min(leasts[-1], least)
                self._merged += 1
            else:
                ends.append(end)
                leasts.append(least)
                self._merged = 1
        if len(ends) > self._most:
            self._merge_neighbours()
            if len(self._ends) > 2 * MOST_STRETCHES:
                self._merge_neighbours(all_alike=True)
            self._most = max(MOST_STRETCHES, 2 * len(self._ends))

    def next_below(self, offset: int, timestamp: int) -> Stretch | None:
        """The first stretch with an offset >= `offset` in which there can be a timestamp below `timestamp`, with the known ones
        behind it of which that is as true; None for none. The last one ends at INT64_MAX."""
        ends, leasts = self._ends, self._leasts
        slot, count = bisect_right(ends, offset), len(ends)
        while slot < count and leasts[slot] >= timestamp:
            slot += 1
        if slot == count:
            if self.since >= timestamp:
                return None
            return Stretch(ends[-1] if count else 0, INT64_MAX, self.since)
        start, least = ends[slot - 1] if slot else 0, leasts[slot]
        behind = slot + 1
        if least != NOT_KNOWN:
            while behind < count and NOT_KNOWN < leasts[behind] < timestamp:
                behind += 1
            if behind == count and NOT_KNOWN < self.since < timestamp:
                return Stretch(start, INT64_MAX, least)
        return Stretch(start, ends[behind - 1], least)

    def learn(self, start: int, stretches: Sequence[tuple[int, int]]) -> None:
        """(end offset, bound) of what was found from `start` on."""
        if not stretches or start >= stretches[-1][0]:
            return
        before, behind = self._stretches_before(start), self._stretches_behind(stretches[-1][0])
        self._set([*before, *stretches, *behind])
        if len(self._ends) > 2 * MOST_STRETCHES:
            self._merge_neighbours()

    def before(self, offset: int) -> LeastTimestamps:
        """Return the bounds for the offsets below this one, where the log was truncated. Readers that still read above it
        report their bounds to this object and not to the returned one."""
        cut = LeastTimestamps()
        cut._set(self._stretches_before(offset))
        cut._per_stretch = self._per_stretch
        cut.since = min(self.since, min(self._leasts[bisect_right(self._ends, offset) :], default=NOTHING))
        return cut

    def take_over(self, replaced: Iterable[tuple[int, LeastTimestamps]]) -> None:
        """The segment has records of these ones, which follow each other, by base offset."""
        stretches: list[tuple[int, int]] = []
        before: LeastTimestamps | None = None
        for base_offset, each in replaced:
            if before is not None:
                stretches.append((base_offset, before.since))
            stretches += zip(each._ends, each._leasts, strict=True)
            before = each
        self._set(stretches)
        self.since = NOT_KNOWN if before is None else before.since
        while len(self._ends) > MOST_STRETCHES and self._merge_neighbours():
            """Half of them are left."""

    def _stretches_before(self, offset: int) -> list[tuple[int, int]]:
        slot = bisect_right(self._ends, offset)
        stretches = list(zip(self._ends[:slot], self._leasts[:slot], strict=True))
        if offset > (stretches[-1][0] if stretches else 0):
            stretches.append((offset, self._leasts[slot] if slot < len(self._ends) else self.since))
        return stretches

    def _stretches_behind(self, offset: int) -> list[tuple[int, int]]:
        slot = bisect_right(self._ends, offset)
        return list(zip(self._ends[slot:], self._leasts[slot:], strict=True))

    def _set(self, stretches: Sequence[tuple[int, int]]) -> None:
        self._ends = array("q", [end for end, _ in stretches])
        self._leasts = array("q", [least for _, least in stretches])
        self._merged = 0

    def _merge_neighbours(self, *, all_alike: bool = False) -> bool:
        """Make two of them one, but for what is known and what is not unless `all_alike`. False: nothing was to be merged."""
        merged: list[tuple[int, int]] = []
        is_single = False
        for end, least in zip(self._ends, self._leasts, strict=True):
            if is_single and (all_alike or (merged[-1][1] == NOT_KNOWN) == (least == NOT_KNOWN)):
                merged[-1] = end, min(merged[-1][1], least)
                is_single = False
            else:
                merged.append((end, least))
                is_single = True
        is_shorter = len(merged) < len(self._ends)
        self._set(merged)
        self._per_stretch *= 2
        return is_shorter
