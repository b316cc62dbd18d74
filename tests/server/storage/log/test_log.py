"""A log's state: snapshots, rolling, flushing, taking segments out, the end."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.server.config import Durability, LogConfig
from triolog.server.storage.disk.diskops import Sync, SyncDirectory
from triolog.server.storage.log.changes import reconfigure, truncate_to

from tests.support.crash_fs import CrashFileSystem
from tests.support.logs import START_MS, DrivenLog, batch, open_driven

SIZE: Final = len(batch())


def log_of(directory: Path, records: int, *, per_segment: int = 10) -> DrivenLog:
    driven = open_driven(directory, config=LogConfig(segment_bytes=per_segment * SIZE, index_interval_bytes=SIZE))
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


def test_slots_by_offset_and_by_time(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, log_start_offset=5, config=LogConfig(segment_bytes=2 * SIZE))
    for timestamp in (10, 20, 5, 6, 30, 1):
        driven.append(batch(START_MS + timestamp))
    snapshot = driven.log.snapshot()
    assert [snapshot.slot_of(offset) for offset in (4, 5, 6, 7, 8, 9, 99)] == [-1, 0, 0, 1, 1, 2, 2]
    assert [snapshot.slot_reaching(START_MS + timestamp) for timestamp in (0, 20, 21, 30, 31)] == [0, 0, 2, 2, 3]


def test_the_readable_end_of_each_segment_follows_the_high_watermark(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 25)
    driven.log.set_high_watermark(13, 10, 3 * SIZE)
    snapshot = driven.log.snapshot()
    assert [snapshot.readable_end(slot) for slot in range(3)] == [10 * SIZE, 3 * SIZE, 0]


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
    ("end", "why"),
    [(9, "cannot roll to 9, the active segment starts at 10"), (10, "a segment with data starts at 10 already")],
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


def test_a_flush_up_to_a_roll_leaves_the_active_segment_alone_and_an_older_one_never_lowers_the_recovery_point(
    tmp_path: Path,
) -> None:
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


def test_every_change_keeps_the_invariant(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 5)
    driven.log.high_watermark = 6
    with pytest.raises(AssertionError, match="0 <= 6 <= 6 <= 5"):
        driven.log.check_invariant()
    driven.log.high_watermark = 5
    driven.log.recovery_point = 6
    with pytest.raises(AssertionError, match="recovery point 6 > 5"):
        driven.log.check_invariant()


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
