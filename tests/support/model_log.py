"""A log as a list: what every answer is compared with.

Batches are kept in full and every answer is a scan. `batches` is what lies in the files, also below the log start offset and
behind the high watermark; readers get neither.

What holds of every log: its answers are those of a scan, and its indexes say what they promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import NO_TIMESTAMP, Record
from triolog.server.storage.disk.diskops import Procedure, drive
from triolog.server.storage.disk.filesystem import FileSystem
from triolog.server.storage.indexes.index import OffsetIndex, TimeIndex
from triolog.server.storage.log.log import LogSnapshot
from triolog.server.storage.lookups.explain import explain_offset, explain_timestamp
from triolog.server.storage.lookups.fetch import fetch_batches
from triolog.server.storage.lookups.timestamps import offset_for_timestamp
from triolog.server.storage.segments.segment import LogSegment

from tests.support.inline_log import InlineLog

NewRecord = tuple[int, bytes | None, bytes | None]
"""Timestamp, key, value: a record before it has an offset."""


@attrs.frozen
class ModelBatch:
    records: tuple[Record, ...]
    gap_from: int | None = None
    """Where the gap starts that recovery covered with this control batch; None for what was appended."""

    @classmethod
    def at(cls, base_offset: int, records: Sequence[NewRecord], append_time: int | None) -> ModelBatch:
        """The batch that a log stores; under LogAppendTime every record has the time of the append."""
        return cls(
            tuple(
                Record(base_offset + delta, timestamp if append_time is None else append_time, key, value)
                for delta, (timestamp, key, value) in enumerate(records)
            )
        )

    @property
    def base_offset(self) -> int:
        return self.records[0].offset if self.gap_from is None else self.gap_from

    @property
    def next_offset(self) -> int:
        return self.records[-1].offset + 1


@attrs.define(eq=False)
class ModelLog:
    batches: list[ModelBatch] = attrs.field(factory=list)
    log_start_offset: int = 0
    high_watermark: int = 0
    log_end_offset: int = 0

    def copy(self) -> ModelLog:
        return attrs.evolve(self, batches=list(self.batches))

    def numbered(self, batches: Iterable[Sequence[NewRecord]], append_time: int | None = None) -> list[ModelBatch]:
        """What an append of these batches would store."""
        numbered: list[ModelBatch] = []
        offset = self.log_end_offset
        for records in batches:
            numbered.append(ModelBatch.at(offset, records, append_time))
            offset = numbered[-1].next_offset
        return numbered

    def append(self, batches: Iterable[ModelBatch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.log_end_offset
            self.batches.append(batch)
            self.log_end_offset = batch.next_offset

    def truncate_to(self, offset: int) -> bool:
        """The batch that holds `offset` goes as a whole; the log ends at `offset` all the same."""
        if offset >= self.log_end_offset:
            return False
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        self._end_at(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.batches.clear()
        self.log_start_offset = self.high_watermark = self.log_end_offset = offset

    def reopen(self, batches: Sequence[ModelBatch], active_base_offset: int) -> None:
        """Go on with what was found in the files: a gap at the end is forgotten, all of it is readable."""
        self.batches = list(batches)
        self.log_end_offset = max(active_base_offset, self.batches[-1].next_offset if self.batches else 0)
        self.high_watermark = self.log_end_offset

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)

    def readable(self) -> Iterator[Record]:
        for batch in self.batches:
            for record in batch.records if batch.gap_from is None else ():
                if self.log_start_offset <= record.offset < self.high_watermark:
                    yield record

    def batches_from(self, offset: int) -> list[ModelBatch]:
        """Batches below the high watermark, from the one that holds `offset` or is the first behind it."""
        return [batch for batch in self.batches if offset < batch.next_offset <= self.high_watermark]

    def first_at_or_after(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the first readable record with at least this timestamp, (-1, -1) when there is none."""
        for record in self.readable():
            if record.timestamp >= timestamp:
                return record.timestamp, record.offset
        return -1, -1

    def largest_timestamp(self) -> tuple[int, int]:
        """(timestamp, offset) of the first readable record with the largest timestamp; (-1, -1) when none has one."""
        largest = max((record.timestamp for record in self.readable()), default=NO_TIMESTAMP)
        return (-1, -1) if largest == NO_TIMESTAMP else self.first_at_or_after(largest)


def questions(timestamps: Iterable[int]) -> list[int]:
    """Each timestamp, the one before and the one behind, and both ends of time."""
    return sorted({asked for t in {0, *timestamps} for asked in (t - 1, t, t + 1) if asked >= 0})


def lookups(records: Sequence[Record]) -> dict[int, tuple[int, int]]:
    """Return by timestamp what a scan of these records answers: (timestamp, offset) of the first record at or after it."""
    return {
        asked: next(((each.timestamp, each.offset) for each in records if each.timestamp >= asked), (-1, -1))
        for asked in questions(each.timestamp for each in records)
    }


def check_lookup(fs: FileSystem, snapshot: LogSnapshot, model: ModelLog, timestamp: int) -> None:
    """The lookup and its explanation both answer what a scan of the readable records answers."""
    expected = model.largest_timestamp() if timestamp == -3 else model.first_at_or_after(timestamp)
    if timestamp in (-1, -2):
        expected = -1, model.high_watermark if timestamp == -1 else model.log_start_offset
    answer = drive(fs, offset_for_timestamp(snapshot, timestamp))
    assert (answer.timestamp, answer.offset) == expected, f"asked {timestamp} of {snapshot}"
    walk = drive(fs, explain_timestamp(snapshot, timestamp, lambda read: True))
    assert walk["answer"] == {"offset": answer.offset, "timestamp": answer.timestamp, "leader_epoch": answer.leader_epoch}


def check_read(fs: FileSystem, snapshot: LogSnapshot, model: ModelLog, offset: int, max_bytes: int) -> int:
    """A read answers whole batches from the offset's on, cut to `max_bytes` but never the first; the next offset."""
    expected = model.batches_from(offset)
    fetched = drive(fs, fetch_batches(snapshot, offset, max_bytes, min_one_batch=True, skip_gaps=True))
    assert (fetched.high_watermark, fetched.log_start_offset) == (model.high_watermark, model.log_start_offset)
    batches = list(iter_batches(fetched.records))
    got = [tuple(iter_records(batch, header)) for header, batch in batches]
    assert got == [batch.records for batch in expected[: len(got)]], f"read from {offset} of {snapshot}"
    assert bool(got) == bool(expected), f"read from {offset} answers {len(got)} batches of {len(expected)}"
    assert len(fetched.records) <= max(max_bytes, batches[0][0].size_bytes if batches else 0)
    unlimited = drive(fs, fetch_batches(snapshot, offset, max_bytes, min_one_batch=False, skip_gaps=True))
    assert bytes(unlimited.records) == bytes(fetched.records[:max_bytes])
    walk = drive(fs, explain_offset(snapshot, offset, lambda read: True))["answer"]
    assert walk.get("batch_base_offset") == (expected[0].base_offset if expected else None)
    return batches[-1][0].next_offset if batches else offset


def check_everything(fs: FileSystem, snapshot: LogSnapshot, model: ModelLog) -> None:
    """Every question that can have its own answer, and the whole log read batch by batch and in one go per segment."""
    assert (snapshot.log_start_offset, snapshot.high_watermark) == (model.log_start_offset, model.high_watermark)
    assert snapshot.log_end_offset == model.log_end_offset
    stamps = {record.timestamp for batch in model.batches for record in batch.records}
    for timestamp in [-1, -2, -3, *questions(stamps)]:
        check_lookup(fs, snapshot, model, timestamp)
    for max_bytes in (0, 1 << 20):
        offset, seen = model.log_start_offset, 0
        while (next_offset := check_read(fs, snapshot, model, offset, max_bytes)) > offset:
            offset, seen = next_offset, seen + 1
        assert not model.batches_from(offset)


def check_indexes(inline: InlineLog, *, was_altered: bool = False) -> None:
    """Entries ascend, point at whole batches, bound what lies before and behind them, and are as dense as promised. An index
    that lookups do without is not looked at.

    `was_altered`: a time entry may have the offset of any record of its batch. Kafka writes such entries, so recovery accepts
    them.
    """
    for segment in inline.log.segments:
        is_active = segment is inline.log.active
        data = inline.content(segment.log.path)[: segment.size]
        batches, position = [], 0
        for header, _ in iter_batches(data):
            batches.append((position, header.last_offset, header.max_timestamp))
            position += header.size_bytes
        trusted = [which for which, index in enumerate(segment.indexes) if _is_trusted(inline, index)]
        for which in trusted:
            _check_search(inline, segment, which)
        if 0 in trusted:
            _check_offset_index(inline, segment, batches)
        if 1 in trusted:
            _check_time_index(inline, segment, batches, is_active=is_active, was_altered=was_altered)
        largest = max((stamp for _, _, stamp in batches), default=-1)
        assert segment.max_timestamp == largest
        if not is_active:
            for which in trusted:
                index = segment.indexes[which]
                assert inline.fs.file_size(index.path) == index.size_in_bytes, f"{index.path} is not trimmed"


_Batch = tuple[int, int, int]
"""Position, last offset, largest timestamp."""


def _is_trusted(inline: InlineLog, index: OffsetIndex | TimeIndex) -> bool:
    if index.entries:
        inline.run(index.mapped(index.entries))  # compares it with what is known of it
    return not index.is_doubted


def _entries(inline: InlineLog, segment: LogSegment, which: int) -> list[tuple[int, int]]:
    index = segment.indexes[which]
    if not index.entries:
        return []
    content = inline.content(index.path)
    return [index.entry_at(content, slot) for slot in range(index.entries)]


def _check_search(inline: InlineLog, segment: LogSegment, which: int) -> None:
    """A lookup answers the greatest entry that is not above what is asked, not just one from which a scan gets there."""
    entries = _entries(inline, segment, which)
    index = segment.indexes[which]
    asked = [key for key in questions(key for key, _ in entries) if key >= entries[0][0]] if entries else []
    for key, found in zip(asked, inline.run(_lookups(index, asked)), strict=True):
        expected = max(entry for entry in entries if entry[0] <= key)
        assert found == expected, f"{index.path}: {key} of {entries}"


def _lookups(index: OffsetIndex | TimeIndex, keys: Iterable[int]) -> Procedure[list[tuple[int, int]]]:
    entries = index.tail.entries
    buffer = (yield from index.mapped(entries)) if entries else b""
    return [index.lookup_in(buffer, entries, key)[1:] for key in keys]


def _check_offset_index(inline: InlineLog, segment: LogSegment, batches: list[_Batch]) -> None:
    entries = _entries(inline, segment, 0)
    last_offsets = [last for _, last, _ in batches]
    starts = [position for position, _, _ in batches]
    previous = -1, -1
    for offset, position in entries:
        assert offset > previous[0], f"{segment.offset_index.path}: {entries}"
        assert position > previous[1], f"{segment.offset_index.path}: {entries}"
        assert position in starts, f"{segment.offset_index.path}: {position} is no batch of {starts}"
        assert offset in last_offsets, f"{segment.offset_index.path}: {offset} is no last offset of {last_offsets}"
        assert starts[last_offsets.index(offset)] >= position
        assert position > 0, f"{segment.offset_index.path}: the first batch has no entry"
        previous = offset, position


def _check_time_index(
    inline: InlineLog, segment: LogSegment, batches: list[_Batch], *, is_active: bool, was_altered: bool
) -> None:
    entries = _entries(inline, segment, 1)
    previous = -1, segment.base_offset
    for timestamp, offset in entries:
        assert timestamp > previous[0], f"{segment.time_index.path}: {entries}"
        assert offset >= previous[1], f"{segment.time_index.path}: {entries}"
        slot = next(slot for slot, (_, _, stamp) in enumerate(batches) if stamp == timestamp)
        first = batches[slot][1]
        allowed = range(batches[slot - 1][1] + 1 if slot else segment.base_offset, first) if was_altered else ()
        assert offset == first or offset in allowed, (
            f"{segment.time_index.path}: {timestamp} first ends at {first}, not at {offset}"
        )
        assert all(last > offset for _, last, stamp in batches if stamp > timestamp)
        previous = timestamp, offset
    largest = max((stamp for _, _, stamp in batches), default=-1)
    if not is_active and largest >= 0:
        assert entries, f"{segment.time_index.path} has no closing entry"
        assert entries[-1][0] == largest, f"{segment.time_index.path} does not end with {largest}: {entries}"
