"""Offsets by time. The naive answer is a scan of every readable record."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from hypothesis import example, given
from triolog.protocol.errors import RecordTooLargeError
from triolog.protocol.limits import INT64_MAX
from triolog.protocol.types import CompressionType, TimestampType
from triolog.server.config import LogConfig
from triolog.server.storage.log.changes import truncate_to
from triolog.server.storage.lookups.explain import explain_timestamp
from triolog.server.storage.lookups.timestamps import check_timestamp, offset_for_timestamp
from triolog.server.storage.segments.segment_view import TimestampAndOffset

from tests.server.storage.lookups.drawn_logs import DrawnLog, drawn_logs, log_of
from tests.server.storage.lookups.test_at_once import Shown
from tests.support.logs import START_MS, DrivenLog, batch, open_driven, scan_for_timestamp

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
    """Kafka: UnifiedLogTest.testFetchOffsetByTimestampIncludesLeaderEpoch."""
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


def test_the_largest_timestamp_comes_with_its_first_record(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testFetchOffsetByTimestampWithMaxTimestampIncludesTimestamp."""
    driven = log_of(tmp_path, 0, 10, 0)
    assert driven.offset_for(MAX) == TimestampAndOffset(START_MS + 10, 1, 0)
    driven.append(batch(START_MS, START_MS + 10, START_MS + 10))
    assert driven.offset_for(MAX).offset == 1
    driven.append(batch(START_MS, START_MS + 20, START_MS + 20))
    assert driven.offset_for(MAX) == TimestampAndOffset(START_MS + 20, 7, 0)


def test_ten_records_the_last_stamped_later(tmp_path: Path) -> None:
    """Kafka: ListOffsetsRequestTest.testResponseIncludesLeaderEpoch, LogOffsetTest.testGetOffsetsBeforeEarliestTime."""
    driven = log_of(tmp_path, *[0] * 9, 10)
    assert driven.offset_for(0) == TimestampAndOffset(START_MS, 0, 0)
    assert driven.offset_for(EARLIEST) == TimestampAndOffset(-1, 0, 0)
    assert driven.offset_for(LATEST) == TimestampAndOffset(-1, 10, 0)
    assert driven.offset_for(MAX) == TimestampAndOffset(START_MS + 10, 9, 0)
    driven.close()
    assert driven.reopen(was_clean=True, log_start_offset=1).offset_for(EARLIEST) == TimestampAndOffset(-1, 1, 0)


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
        with pytest.raises(ValueError, match="none of -1 latest"):
            open_driven(tmp_path).offset_for(timestamp)


@given(drawn_logs())
@example(DrawnLog([([9], 5, True), ([5, 9, 1], 5, False), ([9], 5, True), ([2], 5, False)], 0, 0.4, 1.0, True))
def test_every_answer_equals_a_scan_of_the_readable_log(tmp_path_factory: pytest.TempPathFactory, drawn: DrawnLog) -> None:
    """Live, after a clean stop and after a crash. So nothing below the log start offset is an answer
    (where Kafka 4.1 answers none in the example: it looks into the first segment that reaches the time and no further;
    Kafka: LogOffsetTest.testGetOffsetsAfterDeleteRecords,
    LogOffsetTest.testFetchOffsetByTimestampForMaxTimestampWithUnorderedTimestamps).
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
            continue
        assert (found.timestamp, found.offset) == scan_for_timestamp(records, timestamp), asked
        if timestamp == MAX:
            continue
        at_once, slot = log.look_up(timestamp), snapshot.slot_reaching(timestamp)
        lies_in_first = slot < len(snapshot) and found.offset >= 0 and snapshot.slot_of(found.offset) == slot
        assert at_once == found or (at_once is None and (snapshot.log_start_offset or not lies_in_first)), asked
    driven.log.drop_maps()
