"""Lookups by time, their short ways and those of a fetch, pieces of a range of offsets, and the walk of a lookup as data."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.errors import CorruptRecordError, InvalidRequestError, OffsetOutOfRangeError, RecordTooLargeError
from triolog.protocol.limits import INT64_MAX, KIB
from triolog.protocol.records.batch import RECORD_BATCH_OVERHEAD, BatchHeader, iter_batches, with_timestamp
from triolog.protocol.types import NO_TIMESTAMP, CompressionType, Isolation, TimestampAndOffset, TimestampType
from triolog.server.config import LogConfig, RecordValidation
from triolog.server.storage.disk.diskops import FileHandle, Read
from triolog.server.storage.disk.filesystem import read_at
from triolog.server.storage.indexes.file_records import FIRST_READ_BYTES, UNTOLD_HEADERS
from triolog.server.storage.log.changes import truncate_to
from triolog.server.storage.log.derived_files import FILE_NAME as DERIVED_FILE
from triolog.server.storage.log.gaps import OffsetGap
from triolog.server.storage.log.log import LogSnapshot
from triolog.server.storage.lookups import explain
from triolog.server.storage.lookups.explain import explain_offset, explain_timestamp, whole_log, with_segments
from triolog.server.storage.lookups.fetch import READ_WITH_ANSWER_BYTES, FetchedRecords, fetch_cached
from triolog.server.storage.lookups.split_points import SplitPoint, split_points
from triolog.server.storage.lookups.timestamps import NO_SUCH_RECORD, check_timestamp, first_cached, offset_for_timestamp
from triolog.server.storage.segments.segment_view import UNTOLD_RECORDS

from tests.server.offline.test_verify import flip
from tests.support.logs import START_MS, DrivenLog, batch, open_driven, scan_for_timestamp

TIMES = st.one_of(st.just(NO_TIMESTAMP), st.integers(0, 40))
SIZES = st.just(5)
INTERVALS = st.integers(0, 300)


def log_of(directory: Path, *timestamps: int, **config: Any) -> DrivenLog:
    """A log with one batch per timestamp, counted from START_MS."""
    driven = open_driven(directory, config=LogConfig(**config))
    for timestamp in timestamps:
        driven.append(batch(START_MS + timestamp))
    return driven


@attrs.frozen
class DrawnLog:
    """`appends` are the timestamps of a batch, the size of its values, and whether a roll follows; the rest are shares."""

    appends: list[tuple[list[int], int, bool]]
    interval: int
    log_start: float
    readable: float
    was_clean: bool = False

    def written(self, directory: Path) -> tuple[DrivenLog, list[tuple[int, int, int]]]:
        """The log as it was appended to, and its ends: offset, base offset and size of the active segment."""
        driven = open_driven(directory, config=LogConfig(index_interval_bytes=self.interval, segment_index_bytes=60))
        ends = [(0, 0, 0)]
        for times, size, rolls in self.appends:
            driven.append(batch(*times, value=bytes(size)))
            if rolls:
                driven.roll()
            ends.append((driven.log.log_end_offset, driven.log.active.base_offset, driven.log.active.size))
        return driven, ends

    def opened(self, directory: Path) -> DrivenLog:
        return self.reopened(*self.written(directory))

    def reopened(self, driven: DrivenLog, ends: list[tuple[int, int, int]]) -> DrivenLog:
        if self.was_clean:
            driven.close()
        start = int(self.log_start * driven.log.log_end_offset)
        again = driven.reopen(was_clean=self.was_clean, log_start_offset=start)
        high_watermark = ends[int(self.readable * (len(ends) - 1))]
        if high_watermark[0] >= start:
            again.log.set_high_watermark(*high_watermark)
        return again


def drawn_logs(
    *, sizes: st.SearchStrategy[int] = SIZES, intervals: st.SearchStrategy[int] = INTERVALS
) -> st.SearchStrategy[DrawnLog]:
    append = st.tuples(st.lists(TIMES, min_size=1, max_size=4), sizes, st.booleans())
    return st.builds(DrawnLog, st.lists(append, max_size=25), intervals, st.floats(0, 1), st.floats(0, 1), st.booleans())


COMMITTED = Isolation.READ_COMMITTED


@attrs.define(eq=False)
class Shown:
    """A log whose indexes are mapped, and the reads that lookups in it and fetches from it make."""

    driven: DrivenLog
    is_cached: bool = True
    reads: list[tuple[int, int]] = attrs.field(factory=list)

    def mapped(self, snapshot: LogSnapshot | None = None) -> LogSnapshot:
        snapshot = self.driven.log.snapshot() if snapshot is None else snapshot
        for slot in range(len(snapshot)):
            view = snapshot.segment(slot)
            for index, entries in ((view.time_index, view.time_entries), (view.offset_index, view.offset_entries)):
                if entries:
                    self.driven.run(index.mapped(entries))
        return snapshot

    def look_up(self, timestamp: int, snapshot: LogSnapshot | None = None) -> TimestampAndOffset | None:
        return first_cached(self.mapped(snapshot), timestamp, self.cached_bytes)

    def fetch(
        self, offset: int, max_bytes: int, snapshot: LogSnapshot | None = None, *, min_one_batch: bool = True, **options: Any
    ) -> FetchedRecords | None:
        return fetch_cached(self.mapped(snapshot), offset, max_bytes, self.cached_bytes, min_one_batch=min_one_batch, **options)

    def cached_bytes(self, file: FileHandle, position: int, size: int) -> bytes | None:
        self.reads.append((position, size))
        return read_at(self.driven.fs, file.path, position, size) if self.is_cached else None


def shown(directory: Path, *batches: bytes, **config: Any) -> Shown:
    driven = open_driven(directory, config=LogConfig(**config))
    for each in batches:
        driven.append(each)
    return Shown(driven)


def test_a_small_batch_is_found_in_one_read(tmp_path: Path) -> None:
    log = shown(tmp_path, *(batch(START_MS + number, START_MS + number) for number in range(300)), index_interval_bytes=1000)
    assert log.look_up(START_MS + 250) == (START_MS + 250, 500, 0)
    [(position, size)] = log.reads
    assert position > 0
    assert size <= FIRST_READ_BYTES


def test_what_lies_behind_all_records_is_answered_without_a_read(tmp_path: Path) -> None:
    log = shown(tmp_path, batch(START_MS))
    assert log.look_up(START_MS + 1) is log.look_up(INT64_MAX) is NO_SUCH_RECORD
    assert log.reads == []


def test_a_record_above_the_high_watermark_is_none(tmp_path: Path) -> None:
    """Also where the high watermark lies within a batch."""
    log = shown(tmp_path, batch(START_MS, START_MS + 1))
    snapshot = attrs.evolve(log.driven.log.snapshot(), high_watermark=1)
    assert log.look_up(START_MS, snapshot) == (START_MS, 0, 0)
    assert log.look_up(START_MS + 1, snapshot) is NO_SUCH_RECORD


def test_what_is_not_cached_or_not_mapped_is_left_to_the_long_way(tmp_path: Path) -> None:
    log = shown(tmp_path, *(batch(START_MS + number) for number in range(50)), index_interval_bytes=100)
    snapshot = log.driven.log.snapshot()
    assert first_cached(snapshot, START_MS + 40, log.cached_bytes) is None
    assert fetch_cached(snapshot, 40, KIB, log.cached_bytes, min_one_batch=True) is None
    assert log.reads == []
    log.is_cached = False
    assert log.look_up(START_MS + 40) is log.fetch(40, KIB) is None
    assert len(log.reads) == 2


@pytest.mark.parametrize(
    "late",
    [
        batch(START_MS + 1, compression_type=CompressionType.GZIP),
        batch(START_MS + 1, value=bytes(FIRST_READ_BYTES)),
        batch(*[START_MS] * UNTOLD_RECORDS, START_MS + 1, value=b""),
        batch(START_MS) * UNTOLD_HEADERS + batch(START_MS + 1),
        bytes(with_timestamp(batch(START_MS), TimestampType.CREATE_TIME, START_MS + 1)),
        bytes(with_timestamp(batch(START_MS), TimestampType.LOG_APPEND_TIME, START_MS + 1)),
    ],
    ids=["compressed", "large", "many records", "many batches", "a header that promises more", "append time"],
)
def test_a_batch_that_takes_longer_is_left_to_the_long_way(tmp_path: Path, late: bytes) -> None:
    log = shown(tmp_path, batch(START_MS), late, record_validation=RecordValidation.HEADER)
    assert log.look_up(START_MS) == (START_MS, 0, 0)
    assert log.look_up(START_MS + 1) is None


def test_the_next_segment_and_what_readers_have_to_check_are_left_to_the_long_way(tmp_path: Path) -> None:
    """All matches of the first segment lie below the log start offset."""
    log = shown(tmp_path / "log", batch(START_MS + 9))
    log.driven.roll()
    log.driven.append(batch(START_MS + 9))
    snapshot = attrs.evolve(log.driven.log.snapshot(), log_start_offset=1)
    assert log.look_up(START_MS + 9, snapshot) is None
    assert shown(tmp_path / "checked", batch(START_MS), fetch_check_crcs=True).look_up(START_MS) is None


@pytest.mark.parametrize("length", [0x17, 0x04, 0x02, 0xFF], ids=["negative", "too short", "without a time", "long"])
def test_a_record_that_contradicts_its_length_is_left_to_the_long_way(tmp_path: Path, length: int) -> None:
    log = shown(tmp_path, batch(START_MS, START_MS + 1))
    path = Path(log.driven.log.active.log.path)
    stored = bytearray(path.read_bytes())
    assert log.look_up(START_MS + 1) == (START_MS + 1, 1, 0)
    stored[RECORD_BATCH_OVERHEAD] = length
    path.write_bytes(stored)
    assert log.look_up(START_MS + 1) is None


@pytest.mark.parametrize("value", [b"", bytes(100), bytes(FIRST_READ_BYTES // 4)])
@pytest.mark.parametrize("step", [1, 63, 64, 8191])
def test_records_with_lengths_and_times_of_one_and_two_bytes_are_read(tmp_path: Path, value: bytes, step: int) -> None:
    times = (START_MS, START_MS - step, START_MS + step)
    log = shown(tmp_path, *(batch(time, value=value) for time in times), batch(*times, value=value[:100]))
    for offset, timestamp in ((0, START_MS), (2, START_MS + 1), (2, START_MS + step)):
        assert log.look_up(timestamp) == (times[offset], offset, 0)
    behind = attrs.evolve(log.driven.log.snapshot(), log_start_offset=3)
    assert log.look_up(START_MS, behind) == (START_MS, 3, 0)
    assert log.look_up(START_MS + 1, behind) == (START_MS + step, 5, 0)


def test_what_is_small_comes_in_one_read_with_the_way_to_it(tmp_path: Path) -> None:
    log = shown(tmp_path, *[batch()] * 100, index_interval_bytes=10 * SIZE)
    assert log.fetch(55, SIZE) == log.driven.read(55, SIZE)
    [(position, _)] = log.reads
    assert 0 < position <= 55 * SIZE


def test_what_is_large_is_read_by_itself(tmp_path: Path) -> None:
    """The index leads to the batch before the one that begins with the offset."""
    driven = open_driven(tmp_path)
    for _ in range(30):
        driven.append(batch(START_MS, START_MS, value=bytes(FIRST_READ_BYTES)))
    log = Shown(driven)
    assert log.fetch(14, READ_WITH_ANSWER_BYTES) == driven.read(14, READ_WITH_ANSWER_BYTES)
    assert [size for _, size in log.reads] == [FIRST_READ_BYTES, FIRST_READ_BYTES, READ_WITH_ANSWER_BYTES]


def test_at_the_end_nothing_is_read(tmp_path: Path) -> None:
    log = shown(tmp_path, *[batch()] * 3)
    for isolation, aborted in ((Isolation.READ_UNCOMMITTED, None), (COMMITTED, ())):
        assert log.fetch(3, KIB, isolation=isolation) == FetchedRecords(b"", 3, 0, 3, aborted=aborted)
    assert log.reads == []


@pytest.mark.parametrize(
    "changes",
    [{"check_crcs": True}, {"gaps": (OffsetGap(4, 5, "file"),)}, {"log_start_offset": 3}, {"last_stable_offset": 4}],
    ids=["checked", "with gaps", "below the start", "undecided"],
)
def test_what_needs_another_look_is_left_to_the_long_way(tmp_path: Path, changes: dict[str, Any]) -> None:
    log = shown(tmp_path, *[batch()] * 9)
    snapshot = log.driven.log.snapshot()
    assert log.fetch(2, KIB, snapshot, isolation=COMMITTED) is not None
    assert log.fetch(2, KIB, attrs.evolve(snapshot, **changes), isolation=COMMITTED) is None
    aborted = attrs.evolve(snapshot, active=snapshot.active._replace(transaction_entries=1))
    assert log.fetch(0, KIB, aborted) is not None
    assert log.fetch(0, KIB, aborted, isolation=COMMITTED) is None


def test_an_index_that_leads_too_far_is_left_to_the_long_way(tmp_path: Path) -> None:
    """Which looks the segment through from its start then."""
    log = shown(tmp_path, *[batch()] * 20, index_interval_bytes=SIZE)
    index = Path(log.driven.log.active.offset_index.path)
    entry = index.read_bytes()[:8]
    log.driven.close()
    (index.parent / DERIVED_FILE).unlink()  # as where Kafka wrote the index
    index.write_bytes(entry[:4] + (9 * SIZE).to_bytes(4, "big") + index.read_bytes()[8:])
    again = Shown(log.driven.reopen(was_clean=True))
    (offset, _) = again.driven.run(again.driven.log.active.offset_index.entry(0))
    assert again.fetch(offset, KIB) is None
    assert again.driven.read(offset, KIB) == log.driven.read(offset, KIB)


def test_a_batch_that_reaches_over_the_end_or_is_none_is_left_to_the_long_way(tmp_path: Path) -> None:
    """Which refuses it: half a batch would be asked for again and again."""
    log = shown(tmp_path, *[batch()] * 3)
    path = Path(log.driven.log.active.log.path)
    stored = bytearray(path.read_bytes())
    stored[SIZE + 9] ^= 1  # the length of the second batch
    path.write_bytes(stored)
    assert log.fetch(0, KIB) is not None
    assert log.fetch(1, KIB) is None
    with pytest.raises(CorruptRecordError, match="follow up to position"):
        log.driven.read(1, KIB)
    path.write_bytes(bytes(path.stat().st_size))
    assert log.fetch(1, KIB) is None
    log.driven.log.drop_maps()


@given(
    drawn=drawn_logs(sizes=st.integers(0, 3000), intervals=st.integers(0, 5000)),
    max_bytes=st.one_of(st.integers(0, 300), st.integers(300, 2 * READ_WITH_ANSWER_BYTES)),
    min_one_batch=st.booleans(),
    isolation=st.sampled_from(Isolation),
)
def test_every_fetch_is_that_of_the_long_way(
    tmp_path_factory: pytest.TempPathFactory, drawn: DrawnLog, max_bytes: int, min_one_batch: bool, isolation: Isolation
) -> None:
    """Which leaves no fetch of a byte or more open; and the walk that explains it ends at the same batch."""
    log = Shown(drawn.opened(tmp_path_factory.mktemp("at_once")))
    for offset in range(log.driven.log.log_start_offset, log.driven.log.high_watermark + 1):
        found = log.fetch(offset, max_bytes, min_one_batch=min_one_batch, isolation=isolation)
        expected = log.driven.read(offset, max_bytes, min_one_batch=min_one_batch, isolation=isolation)
        assert found == expected or (found is None and not max_bytes), f"from {offset}"
        walk = log.driven.run(explain_offset(log.driven.log.snapshot(), offset, lambda read: True))
        assert (walk["answer"]["offset"] == -1) is (len(log.driven.read(offset).records) == 0)


LATEST, EARLIEST, MAX = -1, -2, -3
NOTHING = TimestampAndOffset(-1, -1)


def test_an_empty_log_has_no_answer_for_any_time(driven: DrivenLog) -> None:
    """Kafka: UnifiedLogTest.testFetchOffsetByTimestampIncludesLeaderEpoch, LogOffsetTest.testEmptyLogsGetOffsets,
    LogOffsetTest.testFetchOffsetByTimestampForMaxTimestampAfterTruncate."""
    for _ in range(2):
        assert driven.offset_for(0) == driven.offset_for(INT64_MAX) == driven.offset_for(MAX) == NOTHING
        assert driven.offset_for(EARLIEST) == driven.offset_for(LATEST) == TimestampAndOffset(-1, 0, 0)
        driven.append(batch())
        assert driven.offset_for(MAX)[:2] == (START_MS, 0)
        driven.run(truncate_to(driven.log, 0))


def test_every_answer_carries_the_epoch_of_its_batch(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testFetchOffsetByTimestampIncludesLeaderEpoch,
    ListOffsetsRequestTest.testResponseIncludesLeaderEpoch."""
    driven = log_of(tmp_path, 0)
    driven.log.leader_epochs.assign(1, 1)
    driven.append(batch(START_MS + 10))
    assert driven.offset_for(START_MS) == TimestampAndOffset(START_MS, 0, 0)
    assert driven.offset_for(START_MS + 10) == TimestampAndOffset(START_MS + 10, 1, 1)
    assert driven.offset_for(EARLIEST) == TimestampAndOffset(-1, 0, 0)
    assert driven.offset_for(LATEST) == TimestampAndOffset(-1, 2, 1)
    driven.log.leader_epochs.assign(2, 2)
    driven.log.changed()
    assert driven.offset_for(LATEST) == TimestampAndOffset(-1, 2, 2)


def test_a_high_watermark_inside_a_batch_hides_the_rest_of_it(driven: DrivenLog) -> None:
    driven.append(batch(START_MS, START_MS + 10, START_MS + 20))
    driven.log.set_high_watermark(2, 0, driven.log.active.size)
    assert driven.offset_for(START_MS + 10).offset == 1
    assert driven.offset_for(START_MS + 11) == NOTHING
    assert driven.offset_for(LATEST).offset == 2


def test_under_log_append_time_every_record_has_the_time_of_its_batch(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, config=LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    driven.append(batch(5, 7, 6))
    driven.clock.advance(10)
    driven.append(batch(1, 2))
    assert driven.offset_for(START_MS)[:2] == (START_MS, 0)
    assert driven.offset_for(START_MS + 1)[:2] == (START_MS + 10, 3)
    assert driven.offset_for(MAX)[:2] == (START_MS + 10, 3)


def test_a_bomb_is_not_decompressed_to_look_for_a_time(driven: DrivenLog) -> None:
    driven.append(batch(START_MS, START_MS + 1, value=bytes(500_000), compression_type=CompressionType.GZIP))
    snapshot = attrs.evolve(driven.log.snapshot(), max_decompressed_bytes=100_000)
    with pytest.raises(RecordTooLargeError):
        driven.run(offset_for_timestamp(snapshot, START_MS + 1))


@pytest.mark.parametrize("timestamp", [-4, -5, INT64_MAX + 1])
def test_what_no_question_is_gets_refused(tmp_path: Path, timestamp: int) -> None:
    with pytest.raises(ValueError, match=str(timestamp)):
        check_timestamp(timestamp)
    if timestamp < 0:
        with pytest.raises(ValueError, match="not one of -1 latest"):
            open_driven(tmp_path).offset_for(timestamp)


@given(drawn_logs())
@example(DrawnLog([([9], 5, True), ([5, 9, 1], 5, False), ([9], 5, True), ([2], 5, False)], 0, 0.4, 1.0, True))
def test_every_answer_equals_a_scan_of_the_readable_log(tmp_path_factory: pytest.TempPathFactory, drawn: DrawnLog) -> None:
    """Live, after a clean stop and after a crash. So nothing below the log start offset is an answer
    (where Kafka 4.1 answers none in the example: it looks into the first segment that reaches the time and no further;
    Kafka: LogOffsetTest.testGetOffsetsAfterDeleteRecords,
    LogOffsetTest.testFetchOffsetByTimestampForMaxTimestampWithUnorderedTimestamps,
    LogOffsetTest.testGetOffsetsBeforeEarliestTime, LogSegmentTest.testFindOffsetByTimestamp,
    UnifiedLogTest.testFetchOffsetByTimestampWithMaxTimestampIncludesTimestamp).
    The short way leaves no question open whose answer lies in the first segment that reaches the time, unless a batch there
    may have lost its match to the log start offset."""
    driven, ends = drawn.written(tmp_path_factory.mktemp("times"))
    _compare_with_scan(driven)
    _compare_with_scan(drawn.reopened(driven, ends))


def _compare_with_scan(driven: DrivenLog) -> None:
    records, log, snapshot = driven.records(), Shown(driven), driven.log.snapshot()
    for timestamp in (EARLIEST, LATEST, MAX, *range(43)):
        asked, found = f"asked for {timestamp}", driven.offset_for(timestamp)
        walk = driven.run(explain_timestamp(snapshot, timestamp, lambda read: True))
        assert tuple(walk["answer"].values()) == (found.offset, found.timestamp, found.leader_epoch), asked
        if timestamp in (EARLIEST, LATEST):
            assert found.offset == (snapshot.log_start_offset if timestamp == EARLIEST else snapshot.high_watermark)
            continue
        assert (found.timestamp, found.offset) == scan_for_timestamp(records, timestamp), asked
        if timestamp == MAX:
            continue
        at_once, slot = log.look_up(timestamp), snapshot.slot_reaching(timestamp)
        lies_in_first = slot < len(snapshot) and found.offset >= 0 and snapshot.slot_of(found.offset) == slot
        assert at_once == found or (at_once is None and (snapshot.log_start_offset or not lies_in_first)), asked
    driven.log.drop_maps()


SMALL: Final = LogConfig().overlay({"index.interval.bytes": "100", "segment.bytes": "2000", "segment.index.bytes": "400"})


def filled(directory: Path, sizes: list[int]) -> DrivenLog:
    """A log of batches with so many records each."""
    driven = open_driven(directory, config=SMALL)
    for size in sizes:
        driven.append(batch(*[START_MS] * size))
    return driven


def cut(driven: DrivenLog, start: int, end: int, target_bytes: int, max_points: int = 1000) -> list[SplitPoint]:
    return driven.run(split_points(driven.log.snapshot(), start, end, target_bytes, max_points))


def headers_of(driven: DrivenLog) -> list[BatchHeader]:
    return [
        header
        for segment in driven.log.segments
        for header, _ in iter_batches(Path(segment.log.path).read_bytes()[: segment.size])
    ]


def bytes_between(headers: list[BatchHeader], start: int, end: int) -> int:
    """Of the batches that hold these offsets."""
    return sum(header.size_bytes for header in headers if header.next_offset > start and header.base_offset < end)


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=60),
    target_bytes=st.integers(1, 3000),
    low=st.floats(0, 1),
    high=st.floats(0, 1),
    max_points=st.integers(1, 50),
)
def test_the_pieces_are_the_range_and_each_begins_with_a_batch(
    sizes: list[int], target_bytes: int, low: float, high: float, max_points: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        driven = filled(Path(directory), sizes)
        start, end = sorted((int(low * sum(sizes)), int(high * sum(sizes))))
        points = cut(driven, start, end, target_bytes, max_points)
        headers = headers_of(driven)
        driven.log.drop_maps()
    offsets = [point.offset for point in points]
    assert offsets == sorted(set(offsets))
    assert len(points) <= max_points
    assert offsets[:1] == ([start] if start < end else [])
    assert {header.base_offset for header in headers} >= set(offsets[1:])
    for point, stop in zip(points, [*offsets[1:], end], strict=False):
        assert point.offset < stop
        assert point.size_bytes == bytes_between(headers, point.offset, stop)
    assert all(point.size_bytes >= target_bytes for point in points[:-1])


def test_a_small_rest_goes_to_the_piece_before(tmp_path: Path) -> None:
    driven = filled(tmp_path, [1] * 21)
    size = len(batch())
    assert [point.size_bytes // size for point in cut(driven, 0, 21, 10 * size)] == [10, 11]
    assert [point.size_bytes // size for point in cut(driven, 0, 18, 10 * size)] == [10, 8]
    driven.log.drop_maps()


def test_a_range_outside_of_the_log_or_the_wrong_way_round_is_refused(tmp_path: Path) -> None:
    driven = filled(tmp_path, [1, 1])
    assert cut(driven, 1, 1, 10) == cut(driven, 2, 2, 10) == []
    for start, end in ((0, 3), (3, 3), (0, 2**40)):
        with pytest.raises(OffsetOutOfRangeError, match=f"topic-0: {start} to {end} is not in 0 to 2"):
            cut(driven, start, end, 10)
    with pytest.raises(InvalidRequestError, match="2 to 1 is reversed"):
        cut(driven, 2, 1, 10)


def test_a_damaged_index_gives_larger_pieces_and_no_wrong_ones(tmp_path: Path) -> None:
    driven = filled(tmp_path, [1] * 20)
    index = driven.log.segments.first.offset_index
    Path(index.path).write_bytes(bytes([0, 0, 0, 9, 0, 0, 0, 77]) * index.entries)
    driven.log.drop_maps()
    points = cut(driven, 0, 20, 200)
    assert {header.base_offset for header in headers_of(driven)} >= {point.offset for point in points}
    assert sum(point.size_bytes for point in points) == bytes_between(headers_of(driven), 0, 20)
    driven.log.drop_maps()


SIZE = len(batch())


def by_time(stamped: DrivenLog, timestamp: int, is_cached: Callable[[Read], bool] = bool) -> dict[str, Any]:
    return stamped.run(explain_timestamp(stamped.log.snapshot(), timestamp, is_cached))


def by_offset(stamped: DrivenLog, offset: int, is_cached: Callable[[Read], bool] = bool) -> dict[str, Any]:
    return stamped.run(explain_offset(stamped.log.snapshot(), offset, is_cached))


@pytest.fixture
def stamped(tmp_path: Path) -> Iterator[DrivenLog]:
    """25 batches of one record, stamped START_MS + offset, ten to a segment, an index entry for every second one."""
    found = log_of(tmp_path, *range(25), segment_bytes=10 * SIZE, index_interval_bytes=SIZE)
    yield found
    found.log.drop_maps()


def test_a_lookup_by_offset_passes_over_a_damaged_magic_byte_as_a_fetch_does(stamped: DrivenLog) -> None:
    """The batch at offset 14 is the one that the index leads to, and 15 lies behind it."""
    path = Path(stamped.log.segments.values(10, 11)[0].log.path)
    flip(path, 4 * SIZE + 16, 0)
    assert by_offset(stamped, 15)["answer"]["position"] == 5 * SIZE
    with pytest.raises(CorruptRecordError):
        by_offset(stamped, 14)


def test_a_lookup_by_time_tells_segment_slots_and_positions(stamped: DrivenLog) -> None:
    walk = by_time(stamped, START_MS + 15)
    assert walk["asked"] == {"timestamp": START_MS + 15}
    assert (walk["segment_count"], walk["log_start_offset"], walk["high_watermark"]) == (3, 0, 25)
    assert walk["answer"] == {"offset": 15, "timestamp": START_MS + 15, "leader_epoch": 0}
    (step,) = walk["segments"]
    assert (step["segment"], step["number"], step["is_active"]) == (10, 1, False)
    assert (step["size_bytes"], step["max_timestamp"]) == (10 * SIZE, START_MS + 19)
    assert step["time_index"] == {"entries": 5, "slot": 1, "timestamp": START_MS + 14, "offset": 14}
    assert step["offset_index"] == {"entries": 4, "looked_up": 14, "slot": 1, "offset": 14, "position": 4 * SIZE}
    assert step["reads"] == [{"position": 4 * SIZE, "bytes": 6 * SIZE, "cached": True}]
    assert step["bytes_scanned"] == 6 * SIZE


def test_a_lookup_by_offset_tells_the_batch(stamped: DrivenLog) -> None:
    walk = by_offset(stamped, 23)
    assert walk["asked"] == {"offset": 23}
    (step,) = walk["segments"]
    assert (step["segment"], step["is_active"]) == (20, True)
    assert "time_index" not in step
    assert walk["answer"] == {
        "offset": 23,
        "position": 3 * SIZE,
        "batch_base_offset": 23,
        "batch_last_offset": 23,
        "batch_bytes": SIZE,
        "batch_max_timestamp": START_MS + 23,
    }


def test_what_is_not_cached_is_said_to_be_cold(stamped: DrivenLog) -> None:
    (first,) = by_time(stamped, START_MS + 15)["segments"]
    assert first["cached"] is False  # both indexes had to be mapped
    (again,) = by_time(stamped, START_MS + 15)["segments"]
    assert again["cached"] is True
    (cold_step,) = by_time(stamped, START_MS + 15, lambda read: False)["segments"]
    assert cold_step["cached"] is False
    assert [read["cached"] for read in cold_step["reads"]] == [False]


def test_a_lookup_without_index_steps_has_its_answer_alone(stamped: DrivenLog) -> None:
    nothing = by_time(stamped, START_MS + 99)
    assert (nothing["answer"], nothing["segments"]) == ({"offset": -1, "timestamp": -1, "leader_epoch": -1}, [])
    walk = by_offset(stamped, 25)
    assert (walk["answer"], walk["segments"]) == ({"offset": -1}, [])
    with pytest.raises(OffsetOutOfRangeError):
        by_offset(stamped, 26)
    for timestamp, offset in ((-1, 25), (-2, 0), (-3, 24)):
        walk = by_time(stamped, timestamp)
        assert (walk["answer"]["offset"], walk["segments"]) == (offset, [])
        assert bool(walk["reads"]) is (timestamp == -3)


def test_all_segments_are_told_on_request_and_many_neighbours_together(
    stamped: DrivenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_offset(stamped, 15)  # maps the index
    explained = partial(explain_offset, offset=15, is_cached=bool)
    walk = stamped.run(with_segments(stamped.log.snapshot(), explained))
    assert walk["log_segments"] == [
        {
            "segment": base,
            "segments": 1,
            "size_bytes": count * SIZE,
            "least_timestamp": START_MS + base,
            "max_timestamp": START_MS + base + count - 1,
        }
        for base, count in ((0, 10), (10, 10), (20, 5))
    ]
    del walk["log_segments"]
    assert walk == by_offset(stamped, 15)
    monkeypatch.setattr(explain, "MOST_STRETCHES", 2)
    told = [tuple(each.values()) for each in whole_log(stamped.log.snapshot())]
    assert told == [(0, 2, 20 * SIZE, START_MS, START_MS + 19), (20, 1, 5 * SIZE, START_MS + 20, START_MS + 24)]
