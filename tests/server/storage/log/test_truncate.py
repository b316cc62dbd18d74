"""Cutting a log back."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.server.config import LogConfig
from triolog.server.storage.log.changes import truncate_fully_and_start_at, truncate_to
from triolog.server.storage.log.leader_epochs import FILE_NAME, LeaderEpochs, decode_leader_epochs

from tests.support.logs import START_MS, DrivenLog, batch, open_driven

SIZE = len(batch())


def log_of(directory: Path, records: int, *, per_segment: int = 1000, interval: int = 4096) -> DrivenLog:
    """One record per batch, stamped START_MS + offset."""
    config = LogConfig(segment_bytes=per_segment * SIZE, index_interval_bytes=interval, segment_index_bytes=1200)
    driven = open_driven(directory, config=config)
    for offset in range(records):
        driven.append(batch(START_MS + offset))
    return driven


def truncate(driven: DrivenLog, offset: int) -> bool:
    return driven.run(truncate_to(driven.log, offset))


def epochs_on_disk(driven: DrivenLog) -> LeaderEpochs:
    path = Path(driven.log.directory, FILE_NAME)
    return decode_leader_epochs(str(path), path.read_bytes())


@pytest.mark.parametrize("per_segment", [1000, 4])
def test_truncation_behind_the_end_inside_and_to_nothing(tmp_path: Path, per_segment: int) -> None:
    """Kafka: UnifiedLogTest.testTruncateTo, LogSegmentTest.testTruncate."""
    driven = log_of(tmp_path, 10, per_segment=per_segment)
    with pytest.raises(ValueError, match="cannot truncate to offset -1"):
        truncate(driven, -1)
    before = driven.log.snapshot().truncations
    for offset, end, cuts in ((11, 10, 0), (10, 10, 0), (5, 5, 1), (0, 0, 2)):
        assert truncate(driven, offset) is (end < 10)
        assert (driven.log.log_end_offset, driven.log.size_in_bytes, driven.offsets()) == (end, end * SIZE, [*range(end)])
        assert driven.log.snapshot().truncations == before + cuts, "counted for readers"
    assert len(driven.log.segments) == 1
    assert driven.append(batch()).base_offset == 0


def test_truncating_fully_starts_at_any_offset(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testTruncateTo, LocalLogTest.testTruncateFullyAndStartAt."""
    driven = log_of(tmp_path, 10)
    driven.run(truncate_fully_and_start_at(driven.log, 7))
    assert (driven.log.log_end_offset, driven.log.log_start_offset, driven.log.size_in_bytes) == (7, 7, 0)
    assert [segment.base_offset for segment in driven.log.segments] == [7]
    assert driven.append(batch()).base_offset == 7
    driven.run(truncate_fully_and_start_at(driven.log, 20, 15))
    assert (driven.log.log_end_offset, driven.log.log_start_offset) == (20, 15)
    assert driven.append(batch()).base_offset == 20
    assert driven.offsets() == [20]


def test_indexes_may_grow_again_after_a_truncation(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testIndexResizingAtTruncation."""
    driven = log_of(tmp_path, 20, per_segment=10, interval=SIZE - 1)
    first = driven.log.segments.first
    assert (first.offset_index.max_entries, first.time_index.max_entries) == (9, 9)
    assert (first.offset_index.entries, first.time_index.entries) == (9, 9)
    truncate(driven, 0)
    active = driven.log.active
    assert len(driven.log.segments) == 1
    assert (active.offset_index.max_entries, active.time_index.max_entries) == (1200 // 8, 1200 // 12)
    for _ in range(20):
        driven.append(batch())
    assert driven.offsets() == list(range(20))


def test_high_watermark_recovery_point_and_log_start_follow_the_end_down(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testTruncateTo: a cut below the first segment starts anew there."""
    driven = open_driven(tmp_path, log_start_offset=3)
    for _ in range(7):
        driven.append(batch(), sync=True)
    assert (driven.log.high_watermark, driven.log.recovery_point) == (10, 10)
    for offset, start in ((5, 3), (1, 1)):
        truncate(driven, offset)
        log = driven.log
        assert (log.log_start_offset, log.high_watermark, log.recovery_point, log.log_end_offset) == (start, *[offset] * 3)
        assert [segment.base_offset for segment in log.segments] == [start]


def test_segments_behind_the_cut_are_renamed_and_wait_for_their_deletion(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 10, per_segment=4)
    truncate(driven, 5)
    names = {path.name for path in tmp_path.iterdir()}
    assert "00000000000000000008.log" not in names
    assert "00000000000000000008.log.deleted" in names
    (doomed,) = driven.log.doomed
    assert doomed.due_ms == START_MS + LogConfig().file_delete_delay_ms
    assert all(Path(path).exists() for path in doomed.paths)
    assert driven.log.segments.active.base_offset == 4


@pytest.mark.parametrize("offset", [3, 4, 40])
def test_truncation_at_or_behind_the_end_forgets_epochs_that_begin_behind_it(tmp_path: Path, offset: int) -> None:
    """Kafka: UnifiedLog.truncateTo always truncates the epoch cache: a leader may have noted an epoch and appended nothing.
    The latest epoch starts at a cut, on disk too."""
    driven = log_of(tmp_path, 3)
    driven.log.leader_epochs.assign(5, 30)
    driven.run(driven.log.write_leader_epochs())
    assert not truncate(driven, offset)
    assert driven.log.leader_epochs.entries == epochs_on_disk(driven).entries == ((0, 0), (5, 3))
    assert driven.append(batch()).base_offset == 3
    assert driven.log.leader_epochs.end_offset_for(0, driven.log.log_end_offset) == (0, 3)
    truncate(driven, 2)
    assert driven.log.leader_epochs.entries == epochs_on_disk(driven).entries == ((0, 0), (5, 2))


@pytest.mark.parametrize("how", ["to 0", "fully", "at the end"])
def test_an_emptied_log_goes_on_in_its_epoch(tmp_path: Path, how: str) -> None:
    """Appends carry the latest epoch, so the cache must know from where on."""
    driven = open_driven(tmp_path)
    driven.log.leader_epochs.assign(5, 0)
    if how == "at the end":
        assert not truncate(driven, 0)
    else:
        driven.append(batch())
        driven.run(truncate_to(driven.log, 0) if how == "to 0" else truncate_fully_and_start_at(driven.log, 0))
    driven.append(batch())
    assert driven.log.leader_epochs.entries == ((5, 0),)
    assert driven.log.snapshot().earliest_epoch == 5
    assert driven.offset_for(START_MS).leader_epoch == 5
    assert driven.offset_for(-2).leader_epoch == 5
