"""One segment (index entries due, roll rules, reads, truncation; offsets are given by the test), and the map of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.limits import INT32_MAX, INT64_MAX, MAX_SEGMENT_BYTES
from triolog.protocol.records.batch import iter_batches, parse_header
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import NO_TIMESTAMP
from triolog.server.config import LogConfig
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import SegmentOffsetOverflowError
from triolog.server.storage.segments.segment import LogSegment, LogSegments, SegmentCursor
from triolog.server.storage.segments.segment_view import MOST_STRETCHES, NOT_KNOWN, NOTHING, LeastTimestamps, Stretch

from tests.support.logs import batch
from tests.support.segment_files import contents

FS: Final = OsFileSystem()
BASE: Final = 40
MAX_BYTES: Final = 1 << 20


class Segment:
    """A segment in a directory, appended to at given offsets. Every `put` is one append call."""

    def __init__(self, directory: Path, base_offset: int = BASE, **config: Any) -> None:
        self.of = LogSegment.at(str(directory), base_offset, LogConfig(**config), created_ms=0)
        fd = os.open(self.of.log.path, os.O_CREAT | os.O_RDWR)
        os.close(fd)

    def put(self, offset: int, *timestamps: int, **options: Any) -> int:
        """Append one batch that starts at `offset`; answers its size."""
        return self.put_batches(batch(*timestamps, base_offset=offset, **options))

    def put_batches(self, *batches: bytes) -> int:
        cursor, size = self.of.cursor(), sum(map(len, batches))
        headers = [parse_header(data) for data in batches]
        latest = max(headers, key=lambda header: header.max_timestamp)
        self.of.plan_append(
            cursor,
            largest_offset=headers[-1].last_offset,
            largest_timestamp=latest.max_timestamp,
            offset_of_max_timestamp=latest.last_offset,
            buffers=list(batches),
            size=size,
        )
        writes, _ = self.of.writes_for(cursor)
        drive(FS, (write for write in writes))
        self.of.commit(cursor)
        return size

    def read(self, offset: int) -> int | None:
        """Base offset of the batch that a read from `offset` starts with."""
        found = drive(FS, self.of.view().translate_offset(offset))
        return None if found is None else found.header.base_offset

    def offsets(self) -> list[int]:
        data = drive(FS, contents(self.of.records))
        return [record.offset for header, one in iter_batches(data) for record in iter_records(one, header)]

    def find(self, timestamp: int, starting_offset: int = 0) -> tuple[int, int] | None:
        view = self.of.view()
        found = drive(FS, view.find_offset_by_timestamp(timestamp, starting_offset, max_bytes=MAX_BYTES))
        return None if found is None else (found.timestamp, found.offset)

    def truncate_to(self, offset: int, now_ms: int = 0) -> int:
        return drive(FS, self.of.truncate_to(offset, now_ms))

    def offset_entries(self) -> list[tuple[int, int]]:
        index = self.of.offset_index
        return [drive(FS, index.entry(slot)) for slot in range(index.entries)]

    def time_entries(self) -> list[tuple[int, int]]:
        index = self.of.time_index
        return [drive(FS, index.entry(slot)) for slot in range(index.entries)]

    def should_roll(self, **params: int) -> str | None:
        defaults = {"size": 1, "largest_offset": self.of.base_offset, "largest_timestamp": NO_TIMESTAMP, "now_ms": 0}
        return self.of.should_roll(self.of.cursor(), **(defaults | params))

    def waited(self, now_ms: int, timestamp: int) -> int:
        """As `should_roll` says it of a segment that may not wait at all."""
        cursor = self.of.cursor()
        cursor.size, cursor.roll_after_ms = 1, -INT32_MAX
        reason = self.of.should_roll(
            cursor, size=0, largest_offset=self.of.base_offset, largest_timestamp=timestamp, now_ms=now_ms
        )
        assert reason is not None
        return int(reason.removeprefix("time: ").split()[0])


def test_an_append_call_of_many_batches_has_at_most_one_entry(tmp_path: Path) -> None:
    segment = Segment(tmp_path, index_interval_bytes=1)
    first = segment.put(40, 1)
    segment.put_batches(*(batch(10 - number, base_offset=41 + number) for number in range(5)))
    assert segment.offset_entries() == [(45, first)]
    assert segment.time_entries() == [(10, 41)]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-1, 50)), min_size=1, max_size=25), st.integers(0, 400))
def test_entries_equal_a_naive_model(
    tmp_path_factory: pytest.TempPathFactory, appends: list[tuple[int, int]], interval: int
) -> None:
    segment = Segment(tmp_path_factory.mktemp("segment"), index_interval_bytes=interval)
    offset, position, since = BASE, 0, 0
    largest, largest_offset = NO_TIMESTAMP, BASE
    offset_entries: list[tuple[int, int]] = []
    time_entries: list[tuple[int, int]] = []
    for count, timestamp in appends:
        last = offset + count - 1
        size = segment.put(offset, *([timestamp] * count))
        if timestamp > largest:
            largest, largest_offset = timestamp, last
        if since > interval:
            offset_entries.append((last, position))
            if largest > (time_entries[-1][0] if time_entries else NO_TIMESTAMP):
                time_entries.append((largest, largest_offset))
            since = 0
        since, position, offset = since + size, position + size, last + 1
    assert segment.offset_entries() == offset_entries
    assert segment.time_entries() == time_entries
    assert (segment.of.max_timestamp, segment.of.offset_of_max_timestamp) == (largest, largest_offset)


def test_a_cursor_that_is_thrown_away_changed_nothing(tmp_path: Path) -> None:
    segment = Segment(tmp_path, index_interval_bytes=1)
    segment.put(40, 1)
    before = segment.of.cursor()
    cursor = segment.of.cursor()
    segment.of.plan_append(
        cursor, largest_offset=41, largest_timestamp=9, offset_of_max_timestamp=41, buffers=[batch(9)], size=len(batch(9))
    )
    assert _values(segment.of.cursor()) == _values(before) != _values(cursor)
    assert cursor.offset_tail.entries == cursor.time_tail.entries == 1


def _values(cursor: SegmentCursor) -> list[Any]:
    return [getattr(cursor, name) for name in ("size", "max_timestamp", "offset_tail", "time_tail", "buffers")]


@pytest.mark.parametrize(
    ("base_offset", "largest_offset"), [(0, -(2**31)), (0, 2**31), (1, 0), (100, 10), (2**31, 0), (-(2**31), 0), (2**31, 2**32)]
)
def test_an_offset_outside_of_32_bits_above_the_base_is_refused_before_anything_changes(
    tmp_path: Path, base_offset: int, largest_offset: int
) -> None:
    """Kafka: LogSegmentTest.testAppendForLogSegmentOffsetOverflowException."""
    segment = LogSegment.at(str(tmp_path), base_offset, LogConfig(), created_ms=0)
    cursor = segment.cursor()
    with pytest.raises(SegmentOffsetOverflowError, match=str(largest_offset)):
        segment.plan_append(
            cursor,
            largest_offset=largest_offset,
            largest_timestamp=1,
            offset_of_max_timestamp=largest_offset,
            buffers=[batch()],
            size=len(batch()),
        )
    assert cursor.size == 0
    assert cursor.buffers == []


def test_an_append_past_the_largest_position_is_refused(tmp_path: Path) -> None:
    segment = Segment(tmp_path)
    segment.of.size = MAX_SEGMENT_BYTES - 10
    with pytest.raises(ValueError, match=f"are above {MAX_SEGMENT_BYTES}"):
        segment.put(40, 1)


def test_size_time_and_offsets_roll_strictly_above_their_limits(tmp_path: Path) -> None:
    segment = Segment(tmp_path, segment_bytes=100)
    assert segment.should_roll(size=100) is None
    segment.of.size = 60
    assert segment.should_roll(size=40) is None
    assert str(segment.should_roll(size=41)).startswith("size: 60 + 41")
    segment = Segment(tmp_path, segment_ms=1000)
    segment.put(40, 5000)
    segment.of.roll_jitter_ms = 100
    assert segment.should_roll(largest_timestamp=5900) is None
    assert str(segment.should_roll(largest_timestamp=5901)).startswith("time: 901 ms")
    assert segment.should_roll(largest_offset=BASE + INT32_MAX) is None
    assert "does not fit in 32 bits" in str(segment.should_roll(largest_offset=BASE + INT32_MAX + 1))


def test_only_what_a_segment_holds_already_is_rolled_by_time(tmp_path: Path) -> None:
    segment = Segment(tmp_path, segment_ms=1000)
    assert segment.should_roll(now_ms=10_000, largest_timestamp=10_000) is None
    segment.of.created_ms = 300
    segment.put(40, NO_TIMESTAMP)
    assert segment.waited(now_ms=1000, timestamp=99_999) == 700, "without timestamps it counts from its creation"


@pytest.mark.parametrize(
    ("step", "kind", "most"), [(0, "offset", 6), (1, "time", 3)], ids=["equal timestamps", "rising timestamps"]
)
def test_an_index_that_is_full_but_for_its_reserved_slot_rolls(tmp_path: Path, step: int, kind: str, most: int) -> None:
    """48 bytes are 6 offset entries, and 4 time entries of which the last is reserved; equal timestamps make one of these."""
    segment = Segment(tmp_path, index_interval_bytes=0, segment_index_bytes=48)
    for number in range(most + 1):
        assert segment.should_roll(largest_offset=40 + number) is None
        segment.put(40 + number, 1 + number * step)
    assert f"{kind} index has all of its {most} entries" in str(segment.should_roll(largest_offset=41 + most))


def test_the_first_appends_largest_timestamp_is_what_time_counts_from(tmp_path: Path) -> None:
    """Kafka: LogSegmentTest.testGetFirstBatchTimestamp."""
    segment = Segment(tmp_path)
    assert segment.of.rolling_based_timestamp is None
    segment.put(40, 10, 1000, 20)
    assert segment.of.rolling_based_timestamp == 1000
    segment.put(43, 2000)
    assert segment.of.rolling_based_timestamp == 1000
    assert segment.waited(now_ms=99_999, timestamp=1500) == 500
    segment.of.rolling_based_timestamp = None
    drive(FS, segment.of.load_rolling_based_timestamp())
    assert segment.of.rolling_based_timestamp == 1000


@pytest.mark.parametrize("interval", [0, 150, 4096])
def test_a_read_finds_the_first_batch_that_reaches_its_offset(tmp_path: Path, interval: int) -> None:
    """Kafka: LogSegmentTest.testReadOnEmptySegment, testReadAfterLast, testReadFromGap."""
    segment = Segment(tmp_path, index_interval_bytes=interval)
    assert segment.read(40) is None
    for number in range(0, 60, 3):
        segment.put(40 + number, 1, 2, 3)
    segment.put(110, 1)
    assert [segment.read(40 + number) for number in range(60)] == [40 + number // 3 * 3 for number in range(60)]
    assert [segment.read(offset) for offset in (105, 110, 111)] == [110, 110, None]


def test_truncation_to_a_gap_drops_what_lies_behind_it(tmp_path: Path) -> None:
    """Kafka: LogSegmentTest.shouldTruncateEvenIfOffsetPointsToAGapInTheLog."""
    segment = Segment(tmp_path, index_interval_bytes=0)
    assert drive(FS, segment.of.read_next_offset()) == 40
    segment.put(40, 1)
    segment.put(43, 2)
    assert drive(FS, segment.of.read_next_offset()) == 44
    segment.truncate_to(41)
    assert segment.offsets() == [40]


def test_truncating_an_empty_segment_lets_it_take_entries_again(tmp_path: Path) -> None:
    """Kafka: LogSegmentTest.testTruncateEmptySegment."""
    segment = Segment(tmp_path, segment_ms=1000)
    drive(FS, segment.of.become_inactive())
    assert segment.of.offset_index.max_entries == 0
    assert segment.of.time_index.max_entries == 0
    assert segment.truncate_to(57, now_ms=5000) == 0
    assert segment.of.offset_index.max_entries > 0
    assert segment.of.time_index.max_entries > 1
    assert segment.waited(now_ms=5000, timestamp=NO_TIMESTAMP) == 0
    assert segment.should_roll(now_ms=6001) is None
    assert segment.should_roll(now_ms=6001, largest_offset=BASE + INT32_MAX + 200) is not None


def test_a_segment_truncated_to_nothing_is_as_new(tmp_path: Path) -> None:
    """Kafka: LogSegmentTest.testTruncateFull."""
    segment = Segment(tmp_path)
    segment.put(40, 1000, 2000)
    assert segment.waited(now_ms=500, timestamp=NO_TIMESTAMP) == NO_TIMESTAMP - 2000
    segment.truncate_to(0, now_ms=500)
    assert segment.waited(now_ms=500, timestamp=99_999) == 0
    assert segment.read(0) is None
    assert (segment.of.max_timestamp, segment.of.offset_of_max_timestamp) == (NO_TIMESTAMP, BASE)
    segment.put(40, 1, 2)
    assert segment.offsets() == [40, 41]


@pytest.mark.parametrize(("timestamps", "closing"), [((7, 3), [(7, 40)]), ((NO_TIMESTAMP, NO_TIMESTAMP), [])])
def test_an_inactive_segment_has_trimmed_indexes_and_a_closing_entry_if_it_has_timestamps(
    tmp_path: Path, timestamps: tuple[int, int], closing: list[tuple[int, int]]
) -> None:
    segment = Segment(tmp_path, index_interval_bytes=10_000)
    for offset, timestamp in enumerate(timestamps, 40):
        segment.put(offset, timestamp)
    drive(FS, segment.of.become_inactive())
    assert segment.time_entries() == closing
    assert Path(segment.of.time_index.path).stat().st_size == 12 * len(closing)
    assert Path(segment.of.offset_index.path).stat().st_size == 0


def test_the_closing_entry_takes_the_reserved_slot(tmp_path: Path) -> None:
    segment = Segment(tmp_path, index_interval_bytes=0, segment_index_bytes=48)
    for number in range(4):
        segment.put(40 + number, 1 + number)
    segment.of.max_timestamp, segment.of.offset_of_max_timestamp = 99, 43
    drive(FS, segment.of.become_inactive())
    assert segment.time_entries() == [(2, 41), (3, 42), (4, 43), (99, 43)]


def test_the_offset_behind_a_position_is_the_first_entrys_at_or_behind_it(tmp_path: Path) -> None:
    """Kafka: OffsetIndexTest.testFetchUpperBoundOffset."""
    segment = Segment(tmp_path, base_offset=45)
    assert drive(FS, segment.of.view().entry_behind(5)) is None
    entries, index = [(45, 0), (46, 10), (47, 23), (48, 37)], segment.of.offset_index
    for entry in entries:
        drive(FS, index.write_tail(*index.entry_after(index.tail, *entry)))
    for position in (*range(1, 40), 237, 2**31 + 10):
        expected = next((entry for entry in entries if entry[1] >= position), None)
        assert drive(FS, segment.of.view().entry_behind(position)) == expected, position


def segment_at(base_offset: int) -> LogSegment:
    return LogSegment.at("nowhere", base_offset, LogConfig(), created_ms=0)


def segments(*bases: int) -> LogSegments:
    return LogSegments(segment_at(base) for base in bases)


def bases(found: list[LogSegment]) -> list[int]:
    return [one.base_offset for one in found]


def test_a_segment_of_the_same_base_offset_replaces() -> None:
    """Kafka: LogSegmentsTest.testBasicOperations."""
    found = segments(40, 80)
    old, new = found.first, segment_at(40)
    assert found.add(new) is old
    assert len(found) == 2
    assert found.first is new
    assert found.add(segment_at(60)) is None
    assert bases(list(found)) == [40, 60, 80]
    assert 60 in found
    assert 61 not in found


def test_values_start_with_the_segment_that_holds_the_first_offset() -> None:
    found = segments(10, 20, 30)
    assert bases(found.values(0, 5)) == []
    assert bases(found.values(0, 11)) == [10]
    assert bases(found.values(15, 20)) == [10]
    assert bases(found.values(15, 21)) == [10, 20]
    assert bases(found.values(35, 2**63 - 1)) == [30]
    assert found.values(15, 15) == []
    with pytest.raises(ValueError, match="reversed"):
        found.values(16, 15)


@given(st.sets(st.integers(0, 50), min_size=1), st.integers(-1, 52))
def test_every_match_equals_a_scan(all_bases: set[int], offset: int) -> None:
    """Kafka: LogSegmentsTest.testClosestMatchOperations, testHigherSegments."""
    found, ordered = segments(*all_bases), sorted(all_bases)

    def base(one: LogSegment | None) -> int | None:
        return None if one is None else one.base_offset

    assert base(found.floor(offset)) == max((one for one in ordered if one <= offset), default=None)
    assert base(found.higher(offset)) == min((one for one in ordered if one > offset), default=None)
    assert bases(found.higher_segments(offset)) == [one for one in ordered if one > offset]
    assert found.active.base_offset == ordered[-1]


def added(*stretches: tuple[int, int], since: int = NOTHING) -> LeastTimestamps:
    least = LeastTimestamps()
    least.nothing_yet()
    least.add(stretches)
    least.since = since
    return least


def test_what_no_index_entry_tells_of_may_hold_anything() -> None:
    assert LeastTimestamps().next_below(7, 100) == Stretch(0, INT64_MAX, NOT_KNOWN)
    empty = LeastTimestamps()
    empty.nothing_yet()
    assert empty.next_below(0, 100) is None
    assert added((10, 50), since=3).next_below(0, 4) == Stretch(10, INT64_MAX, 3)
    assert added((10, 2), since=3).next_below(0, 4) == Stretch(0, INT64_MAX, 2)


def test_the_next_stretch_that_can_hold_a_smaller_timestamp_comes_with_those_behind_it() -> None:
    least = added((10, 50), (20, 40), (30, 45), (40, 60), (50, 5))
    assert least.next_below(0, 50) == Stretch(10, 30, 40)
    assert least.next_below(25, 50) == Stretch(20, 30, 45)
    assert least.next_below(30, 50) == Stretch(40, 50, 5)
    assert least.next_below(50, 50) is None
    assert least.next_below(0, 5) is None
    assert least.least == 5


def test_what_was_looked_up_takes_the_place_of_what_was_not_known() -> None:
    least = LeastTimestamps()
    least.learn(10, [(20, 7), (30, 9)])
    assert least.next_below(0, 100) == Stretch(0, 10, NOT_KNOWN)
    assert least.next_below(10, 8) == Stretch(10, 20, 7)
    assert least.next_below(20, 8) == Stretch(30, INT64_MAX, NOT_KNOWN)
    least.learn(0, [(10, 3)])
    assert least.next_below(0, 8) == Stretch(0, 20, 3)


def test_what_was_looked_up_is_not_forgotten_where_neighbours_become_one() -> None:
    least = LeastTimestamps()
    for start in range(0, 4 * MOST_STRETCHES * 10, 20):
        least.learn(start, [(start + 10, start)])
    assert len(least) > MOST_STRETCHES  # what is known and what is not does not become one
    assert least.next_below(0, 1) == Stretch(0, 10, 0)


def test_there_are_few_stretches_whatever_is_known_of_them() -> None:
    least = LeastTimestamps()
    for end in range(1, 20 * MOST_STRETCHES):
        least.add([(end, NOT_KNOWN if end % 2 else end)])
        assert len(least) < 5 * MOST_STRETCHES
    assert least.next_below(0, 1) == Stretch(0, least.next_below(0, 1).end, NOT_KNOWN)  # type: ignore[union-attr]


def test_the_bounds_of_segments_that_became_one_are_those_of_their_offsets() -> None:
    least = LeastTimestamps()
    least.take_over([(0, LeastTimestamps()), (100, added((150, 8), since=9)), (200, added((250, 3), since=4))])
    assert least.next_below(0, 5) == Stretch(0, 100, NOT_KNOWN)
    assert least.next_below(100, 5) == Stretch(200, INT64_MAX, 3)
    assert least.next_below(160, 10) == Stretch(150, INT64_MAX, 9)


TIMES = st.lists(st.integers(0, 1000), min_size=1, max_size=3000)


@given(TIMES, st.integers(0, 3000), st.integers(0, 1000))
def test_bounds_are_never_too_large_and_few(timestamps: list[int], cut: int, wanted: int) -> None:
    least = LeastTimestamps()
    least.nothing_yet()
    for offset, timestamp in enumerate(timestamps):
        least.add([(offset + 1, timestamp)])
    assert len(least) <= MOST_STRETCHES + 1
    found, offset = set[int](), 0
    while (stretch := least.next_below(offset, wanted)) is not None:
        offset = max(offset, stretch.start)
        found |= set(range(offset, min(stretch.end, len(timestamps))))
        offset = stretch.end
    below = {offset for offset, timestamp in enumerate(timestamps) if timestamp < wanted}
    assert below <= found
    before = least.before(cut)
    for offset, timestamp in enumerate(timestamps[:cut]):
        stretch = before.next_below(offset, timestamp + 1)
        assert stretch is not None
        assert stretch.start <= offset < stretch.end
    assert least.least == min(timestamps)
