"""A log's state: snapshots, rolling, flushing, cutting back, taking segments out, leader epochs, the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.config import Durability, LogConfig
from triolog.server.storage.disk.diskops import Sync, SyncDirectory
from triolog.server.storage.errors import CheckpointError
from triolog.server.storage.log.changes import reconfigure, truncate_fully_and_start_at, truncate_to
from triolog.server.storage.log.leader_epochs import FILE_NAME, EpochEntry, LeaderEpochs, decode_leader_epochs

from tests.support.crash_fs import CrashFileSystem
from tests.support.logs import START_MS, DrivenLog, batch, open_driven

SIZE: Final = len(batch())


def log_of(directory: Path, records: int, *, per_segment: int = 10, interval: int = SIZE) -> DrivenLog:
    """One record per batch, stamped START_MS + offset."""
    config = LogConfig(segment_bytes=per_segment * SIZE, index_interval_bytes=interval, segment_index_bytes=1200)
    driven = open_driven(directory, config=config)
    for offset in range(records):
        driven.append(batch(START_MS + offset))
    return driven


def bases(driven: DrivenLog) -> list[int]:
    return [segment.base_offset for segment in driven.log.segments]


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_snapshot_is_the_same_object_until_something_changes(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 25)
    first = driven.log.snapshot()
    assert driven.log.snapshot() is first
    driven.append(batch())
    second = driven.log.snapshot()
    assert (first.log_end_offset, second.log_end_offset) == (25, 26)
    assert second.inactive is first.inactive, "appends do not look at inactive segments again"
    driven.roll()
    assert len(driven.log.snapshot().inactive) == 3


@pytest.mark.parametrize("is_full", [False, True])
def test_rolling_an_empty_active_segment_makes_it_anew(driven: DrivenLog, is_full: bool) -> None:
    """Kafka: UnifiedLogTest.testRollSegmentThatAlreadyExists."""
    before = driven.log.active
    if is_full:
        driven.run(driven.log.active.become_inactive())
        assert driven.log.active.offset_index.max_entries == 0
    else:
        driven.roll()
    assert driven.append(batch()).base_offset == 0
    assert driven.log.active is not before
    assert driven.log.active.offset_index.max_entries > 0
    assert (bases(driven), driven.offsets()) == ([0], [0])


@pytest.mark.parametrize(
    ("end", "why"), [(9, "cannot roll to 9, the active segment starts at 10"), (10, "a segment with data already starts at 10")]
)
def test_a_roll_below_the_active_segment_is_refused(tmp_path: Path, end: int, why: str) -> None:
    """Kafka: LocalLogTest.testRollSegmentErrorWhenNextOffsetIsIllegal."""
    driven = log_of(tmp_path, 15)
    driven.log.log_end_offset = end
    with pytest.raises(ValueError, match=why):
        driven.roll()


def test_a_new_segment_has_no_index_files_before_its_first_entry_also_where_strays_have_its_name(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 5)
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        (tmp_path / f"00000000000000000005{suffix}").write_bytes(b"stray")
    driven.roll()
    assert (tmp_path / "00000000000000000005.log").read_bytes() == b""
    driven.append(batch())
    mine = {name for name in names(tmp_path) if name.startswith("00000000000000000005")}
    assert mine == {"00000000000000000005.log", "00000000000000000005.snapshot"}
    assert driven.offsets() == list(range(6))


def test_a_flush_syncs_every_unsynced_segment_and_new_names(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 25)
    plan = driven.log.plan_flush()
    first, second, active = driven.log.segments
    files = {operation.file for operation in plan.operations if isinstance(operation, Sync)}
    assert files == {first.log, second.log, active.log, *(index.file for one in (first, second) for index in one.indexes)}
    assert plan.operations[-1] == SyncDirectory(driven.log.directory)
    assert set(plan.files) == files
    assert driven.log.recovery_point == 0


def test_a_flush_up_to_a_roll_leaves_the_active_segment_alone_and_an_older_one_lowers_nothing(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 25)
    older = driven.log.plan_flush(20)
    assert driven.log.active.log not in older.files
    driven.execute(older.operations)
    driven.log.commit_flush(older)
    assert driven.log.recovery_point == 20
    assert [segment.base_offset for segment in driven.log.unsynced(25)] == [20]
    driven.flush()
    assert driven.log.recovery_point == 25
    assert driven.log.plan_flush().operations == ()
    driven.log.commit_flush(older)
    assert driven.log.recovery_point == 25


def test_a_flush_planned_before_a_truncation_does_not_pass_the_end(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 25)
    plan = driven.log.plan_flush()
    driven.run(truncate_to(driven.log, 12))
    driven.log.commit_flush(plan)
    assert driven.log.recovery_point <= 12
    driven.log.check_invariant()


def test_the_name_of_a_rolled_segment_is_synced_before_its_records_count_as_flushed(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 5)
    driven.flush()
    driven.roll()
    empty = driven.log.plan_flush()
    driven.execute(empty.operations)
    driven.log.commit_flush(empty)
    driven.append(batch())
    assert SyncDirectory(driven.log.directory) in (*empty.operations, *driven.log.plan_flush().operations)


def test_only_files_that_exist_are_renamed_and_the_handles_follow(tmp_path: Path, driven: DrivenLog) -> None:
    """Kafka: LogSegmentTest.testChangeFileSuffixes."""
    driven.append(batch())
    driven.roll()
    fresh = driven.log.active
    driven.run(driven.log.take_out([fresh]))
    (doomed,) = driven.log.doomed
    stem = f"{tmp_path}/00000000000000000001"
    assert doomed.paths == [f"{stem}.log.deleted", f"{stem}.snapshot.deleted"]
    assert [fresh.log.path, fresh.offset_index.path] == [doomed.paths[0], f"{stem}.index.deleted"]
    assert not [name for name in names(tmp_path) if name.startswith("00000000000000000001.index")]
    assert bases(driven) == [0]


def change(driven: DrivenLog, **changes: object) -> None:
    driven.run(reconfigure(driven.log, config=attrs.evolve(driven.log.config, **changes)))


def test_every_segment_follows_the_new_configuration(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, config=LogConfig(segment_bytes=2 * SIZE))
    for _ in range(5):
        driven.append(batch())
    change(driven, segment_bytes=4 * SIZE, index_interval_bytes=0)
    assert {segment.config for segment in driven.log.segments} == {driven.log.config}
    for _ in range(6):
        driven.append(batch())
    assert [segment.base_offset for segment in driven.log.segments] == [0, 2, 4, 8]
    assert driven.offsets() == list(range(11))


def test_the_preallocated_rest_goes_with_preallocation(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, config=LogConfig(segment_bytes=10_000, preallocate=True))
    driven.append(batch())
    path = Path(driven.log.active.log.path)
    change(driven, retention_ms=5)
    assert path.stat().st_size == 10_000
    change(driven, preallocate=False)
    assert path.stat().st_size == SIZE
    driven.append(batch())
    driven.roll()
    assert path.stat().st_size == 2 * SIZE


def test_another_durability_forces_what_is_there_to_the_device() -> None:
    fs = CrashFileSystem()
    driven = open_driven("/log", fs=fs)
    driven.append(batch())
    path = driven.log.active.log.path
    change(driven, retention_ms=5)
    assert not fs.durable_content(path)
    change(driven, durability=Durability.parse("fsync"))
    assert fs.durable_content(path) == fs.content(path)
    assert driven.log.recovery_point == 1


def truncate(driven: DrivenLog, offset: int) -> bool:
    return driven.run(truncate_to(driven.log, offset))


def epochs_on_disk(driven: DrivenLog) -> LeaderEpochs:
    path = Path(driven.log.directory, FILE_NAME)
    return decode_leader_epochs(str(path), path.read_bytes())


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
    """Kafka: UnifiedLogTest.testIndexResizingAtTruncation, LogSegmentTest.testTruncate."""
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


ENTRIES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=8)


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*entry) for entry in entries])


def test_where_an_epoch_ends() -> None:
    """Kafka: LeaderEpochFileCacheTest.shouldReturnNextAvailableEpochIfThereIsNoExactEpochForTheOneRequested."""
    found = epochs((2, 13), (4, 17))
    ends = {-1: (-1, -1), 1: (1, 13), 2: (2, 17), 3: (2, 17), 4: (4, 20), 5: (-1, -1)}
    assert {epoch: found.end_offset_for(epoch, 20) for epoch in ends} == ends
    assert epochs((0, 10), (2, 13)).end_offset_for(1, 20) == (0, 13)
    assert epochs().end_offset_for(0, 20) == (-1, -1)


@pytest.mark.parametrize(
    ("before", "change", "arguments", "after"),
    [
        ([(2, 9)], LeaderEpochs.assign, (2, 10), None),
        ([(1, 5), (2, 6)], LeaderEpochs.assign, (1, 7), [(1, 7)]),
        ([(5, 11), (6, 12), (7, 13)], LeaderEpochs.assign, (7, 12), [(5, 11), (7, 12)]),
        ([(2, 6), (3, 8), (4, 11)], LeaderEpochs.truncate_from_end, (8,), [(2, 6)]),
        ([(2, 6)], LeaderEpochs.truncate_from_end, (-1,), None),
        ([(2, 6)], LeaderEpochs.truncate_from_end, (7,), None),
        ([(0, 0), (1, 7), (2, 10)], LeaderEpochs.truncate_from_start, (5,), [(0, 5), (1, 7), (2, 10)]),
        ([(0, 5), (1, 7), (2, 10)], LeaderEpochs.truncate_from_start, (7,), [(1, 7), (2, 10)]),
        ([(1, 7), (2, 10)], LeaderEpochs.truncate_from_start, (7,), None),
        ([(1, 7), (2, 10)], LeaderEpochs.truncate_from_start, (3,), None),
        ([(0, 0), (2, 6), (5, 9)], LeaderEpochs.go_on_from, (12,), None),
        ([(0, 0), (2, 6), (5, 9)], LeaderEpochs.go_on_from, (9,), None),
        ([(0, 0), (2, 6), (5, 9)], LeaderEpochs.go_on_from, (8,), [(0, 0), (2, 6), (5, 8)]),
        ([(0, 0), (2, 6), (5, 8)], LeaderEpochs.go_on_from, (0,), [(5, 0)]),
        ([], LeaderEpochs.go_on_from, (4,), [(0, 4)]),
        ([(0, 0)], LeaderEpochs.clear, (), []),
        ([], LeaderEpochs.clear, (), None),
    ],
)
def test_which_epochs_a_change_leaves(
    before: list[tuple[int, int]], change: Any, arguments: tuple[int, ...], after: list[tuple[int, int]] | None
) -> None:
    """None: nothing has changed, and it says so. Kafka:
    LeaderEpochFileCacheTest.shouldNotOverwriteLogEndOffsetForALeaderEpochOnceItHasBeenAssigned,
    LeaderEpochFileCacheTest.shouldEnforceMonotonicallyIncreasingEpochs,
    LeaderEpochFileCacheTest.shouldTruncateIfMatchingEpochButEarlierStartingOffset,
    LeaderEpochFileCacheTest.shouldDropEntriesOnEpochBoundaryWhenRemovingLatestEntries,
    LeaderEpochFileCacheTest.shouldUpdateOffsetBetweenEpochBoundariesOnClearEarliest."""
    found = epochs(*before)
    assert change(found, *arguments) is (after is not None)
    assert found.entries == tuple(before if after is None else after)


@given(ENTRIES, st.integers(0, 60))
def test_going_on_never_lowers_the_epoch_and_forgets_what_lies_behind(entries: list[tuple[int, int]], end_offset: int) -> None:
    found = epochs(*entries)
    before = found.entries
    changed = found.go_on_from(end_offset)
    assert found.latest_epoch == (before[-1].epoch if before else 0)
    assert all(entry.start_offset <= end_offset for entry in found.entries)
    assert [entry for entry in before if entry.start_offset < end_offset] == [
        entry for entry in found.entries if entry.start_offset < end_offset
    ]
    assert changed is (found.entries != before)


@given(ENTRIES, st.integers(0, 70))
def test_every_cache_ascends_and_answers_by_scan(entries: list[tuple[int, int]], offset: int) -> None:
    found = epochs(*entries).entries
    assert [entry.epoch for entry in found] == sorted({entry.epoch for entry in found})
    assert [entry.start_offset for entry in found] == sorted({entry.start_offset for entry in found})
    expected = [entry.epoch for entry in found if entry.start_offset <= offset]
    assert LeaderEpochs(list(found)).epoch_for_offset(offset) == (expected[-1] if expected else None)


@given(ENTRIES)
def test_the_file_reads_back(entries: list[tuple[int, int]]) -> None:
    found = epochs(*entries)
    assert decode_leader_epochs("file", found.encode()).entries == found.entries


def test_the_file_has_a_line_for_each_epoch_and_others_are_not_understood() -> None:
    assert epochs((0, 0), (2, 1200)).encode() == b"0\n2\n0 0\n2 1200\n"
    for entry in ("0", "-1 0", "0 -1", f"{2**31} 0", f"0 {2**63}"):
        with pytest.raises(CheckpointError, match=r"^file: (the line .* fields|entry 1 .*31 bits|'.*' is not a whole number)"):
            decode_leader_epochs("file", f"0\n2\n0 0\n{entry}\n".encode())
    for negative in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="neither can be negative"):
            epochs(negative)
