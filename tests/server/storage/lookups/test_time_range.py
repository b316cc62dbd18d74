"""Ranges of times. The naive answer is a scan of every readable record."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidRequestError, OffsetOutOfRangeError
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import CommittedFilter, iter_records
from triolog.protocol.types import NO_OFFSET, CompressionType, Isolation, Record, TimeRange, TimestampType
from triolog.server.config import GapPolicy, LogConfig, RecordValidation
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.errors import OffsetInGapError
from triolog.server.storage.log.changes import truncate_to
from triolog.server.storage.log.gaps import OffsetGap
from triolog.server.storage.lookups import time_range
from triolog.server.storage.lookups.explain import explain_range
from triolog.server.storage.lookups.fetch import FetchedRecords
from triolog.server.storage.lookups.fetched_records import aborted_pairs
from triolog.server.storage.lookups.time_range import fetch_range

from tests.server.storage.lookups.test_timestamps import log_of as log_of_batches
from tests.support.compaction import clean, end_transaction
from tests.support.counts import counts
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS, DrivenLog, batch, open_driven

SIZE: Final = len(batch())
MANY: Final = counts(600, commit=40)


def times(start: int, end: int) -> TimeRange:
    """Counted from START_MS."""
    return TimeRange(START_MS + start, START_MS + end)


def page(
    driven: DrivenLog, wanted: TimeRange, offset: int = NO_OFFSET, max_bytes: int = 1 << 20, **options: Any
) -> FetchedRecords:
    return driven.run(fetch_range(driven.log.snapshot(), offset, wanted, max_bytes, min_one_batch=True, **options))


def records_of(answer: FetchedRecords, wanted: TimeRange, offset: int) -> list[Record]:
    """What a reader takes out of a page."""
    start = answer.log_start_offset if offset == NO_OFFSET else offset
    committed = CommittedFilter(aborted_pairs(answer))
    return [
        record
        for header, data in iter_batches(answer.records)
        if not committed.leaves_out(header, data)
        for record in iter_records(data, header)
        if record.offset >= start and wanted.holds(record.timestamp)
    ]


def read_range(driven: DrivenLog, wanted: TimeRange, max_bytes: int = 1 << 20, **options: Any) -> list[Record]:
    """Page by page up to the end of the range."""
    found: list[Record] = []
    offset = NO_OFFSET
    while True:
        answer = page(driven, wanted, offset, max_bytes, **options)
        found += records_of(answer, wanted, offset)
        if answer.ends_range:
            return found
        assert answer.next_offset > offset, "a page goes on, or the range is at its end"
        offset = answer.next_offset


def scan(driven: DrivenLog, wanted: TimeRange, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> list[Record]:
    return [record for record in driven.records(isolation, skip_gaps=True) if wanted.holds(record.timestamp)]


log_of: Final = functools.partial(log_of_batches, index_interval_bytes=SIZE)
"""With an index entry for every second batch."""


def offsets(records: Sequence[Record]) -> list[int]:
    return [record.offset for record in records]


def bytes_read(driven: DrivenLog, wanted: TimeRange) -> int:
    """Of the logs, for one page."""
    fs = GateFileSystem()
    drive(fs, fetch_range(driven.log.snapshot(), NO_OFFSET, wanted, 1 << 20, min_one_batch=True))
    return sum(size for name, size in fs.read_bytes.items() if name.endswith(".log"))


def test_batches_that_cannot_hold_records_of_the_range_do_not_come(tmp_path: Path) -> None:
    driven = log_of(tmp_path, *range(20), *range(100, 200), 15, *range(200, 300), *range(10), 16, segment_bytes=60 * SIZE)
    answer = page(driven, times(15, 18))
    bases = [header.base_offset for header, _ in iter_batches(answer.records)]
    assert {15, 16, 17, 120, 231} <= set(bases)
    assert len(bases) < 15
    assert answer.ends_range


def test_a_range_has_its_start_and_not_its_end_and_an_empty_one_is_at_its_end_at_once(tmp_path: Path) -> None:
    driven = log_of(tmp_path, *range(10))
    assert offsets(read_range(driven, times(3, 7))) == [3, 4, 5, 6]
    assert offsets(read_range(driven, TimeRange())) == list(range(10))
    for wanted in (times(4, 4), times(20, 30), TimeRange(0, 5)):
        answer = page(driven, wanted)
        assert (bytes(answer.records), answer.ends_range) == (b"", True)
    assert page(driven, times(20, 30)).next_offset == 10
    with pytest.raises(InvalidRequestError, match="topic-0: end_timestamp 4 is before start_timestamp 5"):
        page(driven, TimeRange(5, 4))


def test_one_batch_comes_whole_however_large_it_is(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 0)
    driven.append(batch(START_MS + 5, value=b"x" * 1000))
    driven.append(batch(START_MS + 6))
    assert offsets(records_of(page(driven, times(5, 7), max_bytes=1), times(5, 7), NO_OFFSET)) == [1]
    none = driven.run(fetch_range(driven.log.snapshot(), NO_OFFSET, times(5, 7), 1, min_one_batch=False))
    assert (bytes(none.records), none.next_offset, none.ends_range) == (b"", 1, False)


def test_an_offset_outside_of_the_log_is_refused_as_by_a_fetch(tmp_path: Path) -> None:
    driven = log_of(tmp_path, *range(5))
    driven.close()
    again = driven.reopen(was_clean=True, log_start_offset=2)
    assert offsets(read_range(again, times(0, 4))) == [2, 3]
    for outside in (1, 6):
        with pytest.raises(OffsetOutOfRangeError):
            page(again, times(0, 4), outside)


def test_a_range_is_one_of_the_times_that_records_have(tmp_path: Path) -> None:
    """Under LogAppendTime those of their appends; without a time they are in no range."""
    driven = log_of(tmp_path / "appended", message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    for _ in range(6):
        driven.append(batch(5, 7, 6))
        driven.clock.advance(10)
    assert offsets(read_range(driven, times(10, 30))) == [3, 4, 5, 6, 7, 8]
    driven = log_of(tmp_path / "without")
    driven.append(batch(-1, START_MS, -1))
    assert offsets(read_range(driven, TimeRange(end=START_MS + 1))) == [1]


def test_an_aborted_transaction_does_not_reach_past_its_marker_though_that_has_another_time(tmp_path: Path) -> None:
    """What lies between two stretches of a range would be missed by a reader: the marker that ends the first transaction."""
    driven = log_of(tmp_path)

    def write(sequence: int, timestamp: int) -> None:
        driven.append(
            batch(START_MS + timestamp, producer_id=1, producer_epoch=0, base_sequence=sequence, is_transactional=True)
        )

    write(0, 5)
    driven.clock.advance(1000)
    end_transaction(driven, 1, commit=False)
    for _ in range(20):
        driven.append(batch(START_MS + 900))
    write(1, 6)
    end_transaction(driven, 1, commit=True)
    committed = Isolation.READ_COMMITTED
    assert offsets(read_range(driven, times(0, 10), isolation=committed)) == [22]
    assert offsets(read_range(driven, times(0, 10))) == [0, 22]


def test_a_gap_inside_of_a_range_is_refused_or_passed_over(tmp_path: Path) -> None:
    """Of ten records 4 and 5 were damaged and taken out. One outside of a range is none of its business."""
    driven = log_of(tmp_path, 0, 1, 2, 3, gap_policy=GapPolicy.REFUSE)
    driven.log.log_end_offset = 6
    driven.log.gaps = (OffsetGap(4, 6, "-"),)
    driven.log.changed()
    for timestamp in (6, 7, 8, 9):
        driven.append(batch(START_MS + timestamp))
    first = page(driven, times(2, 8))
    assert (offsets(records_of(first, times(2, 8), NO_OFFSET)), first.next_offset, first.ends_range) == ([2, 3], 4, False)
    with pytest.raises(OffsetInGapError, match="offset 4 was lost to corruption"):
        page(driven, times(2, 8), first.next_offset)
    passed = page(driven, times(2, 8), skip_gaps=True)
    assert offsets(records_of(passed, times(2, 8), NO_OFFSET)) == [2, 3, 6, 7]
    assert passed.passed == driven.log.gaps
    assert offsets(read_range(driven, times(1, 3))) == [1, 2]
    assert offsets(read_range(driven, times(7, 9))) == [7, 8]
    driven.log.drop_maps()


def test_segments_behind_the_range_are_not_read_and_what_a_restart_forgot_is_looked_up_once(tmp_path: Path) -> None:
    """Of 400 batches of 1 KB, a millisecond apart, 40 to a segment."""
    driven = open_driven(tmp_path, config=LogConfig(segment_bytes=43_000))
    for timestamp in range(400):
        driven.append(batch(START_MS + timestamp, value=b"x" * 1000))
    assert bytes_read(driven, times(50, 60)) < 60_000
    driven.close()
    again = driven.reopen(was_clean=True)
    assert bytes_read(again, times(50, 60)) > 340_000
    assert bytes_read(again, times(50, 60)) < 60_000
    assert offsets(read_range(again, times(50, 60))) == list(range(50, 60))


def test_a_page_is_empty_rather_than_late_when_much_has_to_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driven = log_of(tmp_path, 5, *range(100, 300), segment_bytes=40 * SIZE)
    driven.close()
    again = driven.reopen(was_clean=True)
    monkeypatch.setattr(time_range, "MOST_LOOKED_AT_BYTES", 30 * SIZE)
    first = page(again, times(0, 10))
    assert offsets(records_of(first, times(0, 10), NO_OFFSET)) == [0]
    assert not first.ends_range
    assert offsets(read_range(again, times(0, 10))) == [0]


def test_the_walk_tells_segments_slots_and_runs(tmp_path: Path) -> None:
    driven = log_of(tmp_path, *range(25), segment_bytes=10 * SIZE)
    walk = driven.run(explain_range(driven.log.snapshot(), times(12, 16), lambda read: True))
    assert walk["asked"] == {"start_timestamp": START_MS + 12, "end_timestamp": START_MS + 16}
    assert walk["segments_skipped"] == 2
    (step,) = walk["segments"]
    assert (step["segment"], step["least_timestamp"], step["runs"]) == (10, START_MS + 10, 1)
    assert step["time_index"] == {"entries": 5, "slot": 0, "timestamp": START_MS + 12, "offset": 12}
    assert step["offset_index"]["slot"] >= 0
    assert step["bytes_scanned"] > 0
    assert walk["answer"]["offset"] == 12
    assert 16 <= walk["answer"]["end_offset"] <= 18
    driven.append(batch(START_MS + 13))
    late = driven.run(explain_range(driven.log.snapshot(), times(12, 16), lambda read: True))
    assert [each["segment"] for each in late["segments"]] == [10, 20]
    nothing = driven.run(explain_range(driven.log.snapshot(), times(90, 95), lambda read: True))
    assert (nothing["answer"]["offset"], nothing["segments"], nothing["segments_skipped"]) == (-1, [], 3)


TIME: Final = st.integers(0, 60)


@attrs.frozen
class Step:
    """What happens to a log next."""

    what: str
    timestamps: tuple[int, ...] = ()
    codec: CompressionType = CompressionType.NONE
    number: int = 0


STEPS: Final = st.one_of(
    st.builds(
        Step,
        st.sampled_from(["append", "append", "append", "transaction"]),
        st.lists(TIME, min_size=1, max_size=4).map(tuple),
        st.sampled_from(CompressionType),
        st.integers(0, 2),
    ),
    st.builds(Step, st.sampled_from(["commit", "abort"]), number=st.integers(0, 2)),
    st.builds(Step, st.sampled_from(["roll", "reopen", "crash", "clean", "gap", "look"])),
    st.builds(Step, st.just("truncate"), number=st.integers(0, 3)),
)


class Story:
    """A log to which such steps happen."""

    def __init__(self, directory: Path, config: LogConfig) -> None:
        self.driven = open_driven(directory, config=config)
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.keys = 0

    def take(self, step: Step) -> None:
        driven, log = self.driven, self.driven.log
        producer = step.number
        match step.what:
            case "append" | "transaction":
                options: dict[str, Any] = {}
                if step.what == "transaction":
                    options = {"producer_id": producer, "producer_epoch": 0, "is_transactional": True}
                    options["base_sequence"] = self.sequences.get(producer, 0)
                    self.sequences[producer] = options["base_sequence"] + len(step.timestamps)
                    self.open.add(producer)
                self.keys += 1
                records = [(START_MS + time, b"%d" % (self.keys % 3), b"v", ()) for time in step.timestamps]
                driven.append(build_batch(records, compression_type=step.codec, **options))
            case "commit" | "abort" if producer in self.open:
                self.open.discard(producer)
                end_transaction(driven, producer, commit=step.what == "commit")
            case "roll" if log.active.size:
                driven.roll()
            case "reopen":
                driven.close()
                self.driven = driven.reopen(was_clean=True)
            case "crash":
                self.driven = driven.reopen(was_clean=False)
            case "clean" if not self.open and log.log_end_offset and log.active.size:
                clean(driven)
            case "gap" if log.active.size:
                log.gaps = (*log.gaps, OffsetGap(log.log_end_offset, log.log_end_offset + 2, "-"))
                log.log_end_offset += 2
                driven.roll()
                log.high_watermark_to_end()
            case "look":
                read_range(driven, times(20, 30), skip_gaps=True)
            case "truncate" if not self.sequences and not log.gaps:
                driven.run(truncate_to(log, max(0, log.log_end_offset - step.number)))


@settings(max_examples=MANY)
@given(
    steps=st.lists(STEPS, max_size=25),
    ranges=st.lists(st.tuples(TIME, TIME).map(sorted), min_size=1, max_size=4),
    segment_bytes=st.integers(200, 1500),
    validation=st.sampled_from(RecordValidation),
    max_bytes=st.sampled_from([1, 150, 1 << 20]),
)
def test_a_range_is_the_filter_of_a_scan(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[Step],
    ranges: list[list[int]],
    segment_bytes: int,
    validation: RecordValidation,
    max_bytes: int,
) -> None:
    config = LogConfig(
        segment_bytes=segment_bytes,
        index_interval_bytes=100,
        cleanup_policy=("compact",),
        record_validation=validation,
        min_cleanable_dirty_ratio=0.0,
    )
    story = Story(tmp_path_factory.mktemp("range"), config)
    for step in steps:
        story.take(step)
    driven = story.driven
    wanted = [times(start, end) for start, end in ranges]
    wanted += [TimeRange(start=wanted[0].start), TimeRange(end=wanted[0].end)]
    for isolation in Isolation:
        for each in wanted:
            found = read_range(driven, each, max_bytes, isolation=isolation, skip_gaps=True)
            assert found == scan(driven, each, isolation)
            walk = driven.run(explain_range(driven.log.snapshot(), each, lambda read: True))
            if isolation is Isolation.READ_UNCOMMITTED and found:
                assert walk["answer"]["offset"] <= found[0].offset
                assert walk["answer"]["end_offset"] > found[-1].offset
