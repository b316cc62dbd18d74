"""Cleaned segments in the place of old ones: nothing is lost or doubled, whenever the machine goes off, and after any number of
rounds a reader sees what a naive model says."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import CompressionType, Isolation, TimestampType
from triolog.server.config import LogConfig
from triolog.server.offline.compact_directory import compact
from triolog.server.storage.cleaner.clean import clean
from triolog.server.storage.cleaner.selection import choose, plan_round
from triolog.server.storage.cleaner.swap import (
    SegmentsChangedError,
    complete_swaps,
    discard_cleaned,
    replace_group,
    replace_segments,
)
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.disk.filesystem import FileSystem, OsFileSystem
from triolog.server.storage.errors import SnapshotExpiredError
from triolog.server.storage.log.changes import reconfigure, truncate_to

from tests.support import compaction
from tests.support.altered_files import alter_one
from tests.support.compaction import MAP_BYTES, end_transaction, put, put_all, stored
from tests.support.counts import counts, draws
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.logs import DrivenLog, open_driven, read_all

DIRECTORY = "/log"


def filled(directory: str | Path, fs: FileSystem | None = None, records: int = 40, **config: Any) -> DrivenLog:
    """A log of several segments, all on the device, of records that are superseded here and there."""
    settings: dict[str, Any] = {"cleanup_policy": ("compact",), "segment_bytes": 320, "index_interval_bytes": 50}
    driven = open_driven(directory, fs=fs, config=LogConfig(**(settings | config)))
    for number in range(records):
        put(driven, number % 11, number)
    driven.roll()
    driven.flush()
    driven.fs.sync_directory("/")
    return driven


def final(records: list[tuple[int, str, str | None]]) -> dict[str, tuple[int, str | None]]:
    return {key: (offset, value) for offset, key, value in records}


def names(fs: FileSystem, suffix: str) -> list[str]:
    return [name for name in fs.list_directory(DIRECTORY) if name.endswith(suffix)]


@pytest.mark.parametrize("segment_bytes", [320, 700, 100_000], ids=["single segments", "pairs", "one group"])
def test_a_power_cut_at_any_operation_of_a_round_loses_and_doubles_nothing(segment_bytes: int) -> None:
    """Kafka: LogCleanerTest.testRecoveryAfterCrash, on a disk that may drop and reorder what was not synced."""
    rng = draws(20)
    fs = CrashFileSystem(page_bytes=512)
    driven = filled(DIRECTORY, fs, 24)
    driven.log.config = attrs.evolve(driven.log.config, segment_bytes=segment_bytes)
    moments = fs.moments()
    compact(fs, driven.log, None, map_bytes=MAP_BYTES)
    moments = [*moments, fs.copy()]
    for _ in range(counts(400)):
        check_after_crash(rng.choice(moments).crash(rng), driven, rng)


@pytest.mark.merge
@pytest.mark.parametrize(("records", "segment_bytes"), [(12, 100_000), (24, 700)], ids=["most stays", "nothing stays"])
def test_a_power_cut_at_every_operation_of_a_replacement_loses_and_doubles_nothing(records: int, segment_bytes: int) -> None:
    """Many disks for each operation: what survives of several renames is chance."""
    rng = draws(21)
    fs = CrashFileSystem(page_bytes=512)
    driven = filled(DIRECTORY, fs, records)
    driven.log.config = attrs.evolve(driven.log.config, segment_bytes=segment_bytes)
    job, group, truncations = cleaned_group(driven)
    moments = fs.moments()
    driven.run(replace_group(driven.log, job, group, truncations))
    assert len(moments) > 10
    for moment in [*moments, fs.copy()]:
        for _ in range(counts(100)):
            check_after_crash(moment.crash(rng), driven, rng)


def check_after_crash(fs: CrashFileSystem, driven: DrivenLog, rng: random.Random) -> None:
    """Completing is interrupted too, once; then the log is opened as after any unclean stop."""
    end = driven.log.log_end_offset
    before = [(offset, str(offset % 11), str(offset)) for offset in range(end)]
    fs.cut_after(rng.randrange(30))
    with contextlib.suppress(PowerCut):
        complete_swaps(fs, DIRECTORY)
    fs = fs.crash(rng)
    complete_swaps(fs, DIRECTORY)
    assert names(fs, ".swap") + names(fs, ".cleaned") == []
    alter_one(fs, DIRECTORY, rng)
    opened = open_driven(DIRECTORY, fs=fs, config=driven.log.config, was_clean=False, recovery_point=driven.log.recovery_point)
    found = stored(opened)
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    assert set(found) <= set(before)
    assert final(found) == final(before)
    assert opened.log.log_end_offset == end
    compaction.clean(opened)
    assert sorted(stored(opened)) == sorted((offset, key, value) for key, (offset, value) in final(before).items())


def test_at_load_old_segments_are_gone_on_the_device_before_a_new_one_has_its_name() -> None:
    """Else a second power cut leaves a new segment and old ones of its range, and nothing that tells them apart."""
    rng = draws(22)
    stopped = CrashFileSystem(page_bytes=512)
    driven = filled(DIRECTORY, stopped, 12)
    driven.log.config = attrs.evolve(driven.log.config, segment_bytes=100_000)
    cleaned_group(driven)
    for name in names(stopped, ".cleaned"):
        stopped.rename(f"{DIRECTORY}/{name}", f"{DIRECTORY}/{name.removesuffix('.cleaned')}.swap")
    stopped.sync_directory(DIRECTORY)
    completed = stopped.crash(rng)
    complete_swaps(completed, DIRECTORY)
    for cut in range(30):
        for _ in range(counts(100)):
            fs = stopped.crash(rng)
            fs.cut_after(cut)
            with contextlib.suppress(PowerCut):
                complete_swaps(fs, DIRECTORY)
            fs = fs.crash(rng)
            complete_swaps(fs, DIRECTORY)
            assert sorted(names(fs, ".log")) == sorted(names(completed, ".log"))


def interrupted(tmp_path: Path) -> tuple[DrivenLog, list[str]]:
    """A log with the `.cleaned` files of its only group; answers the names of its segment files before."""
    driven = filled(tmp_path, segment_bytes=320)
    driven.log.config = attrs.evolve(driven.log.config, segment_bytes=1 << 20)
    cleaned_group(driven)
    return driven, sorted(path.name for path in tmp_path.iterdir() if path.name.endswith((".log", "index")))


def move(directory: Path, source: str, target: str) -> None:
    for path in sorted(directory.iterdir()):
        if path.name.endswith(source):
            path.rename(directory / (path.name.removesuffix(source) + target))


@pytest.mark.parametrize("swapped", [0, 1])
def test_cleaned_files_and_a_swap_that_is_not_complete_are_discarded_at_load(tmp_path: Path, swapped: int) -> None:
    """Kafka: LogCleanerTest.testRecoveryAfterCrash, first case: renamed to .cleaned only; and
    LogLoader.removeTempFilesAndCollectSwapFiles: .swap at or behind a .cleaned goes."""
    driven, before = interrupted(tmp_path)
    expected = stored(driven)
    cleaned = sorted(path for path in tmp_path.iterdir() if path.suffix == ".cleaned")
    for path in cleaned[:swapped]:
        path.rename(path.with_suffix(".swap"))
    complete_swaps(OsFileSystem(), str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.endswith((".log", "index"))) == before
    assert {path.suffix for path in tmp_path.iterdir()} & {".cleaned", ".swap"} == set()
    assert stored(driven.reopen(was_clean=False, recovery_point=40)) == expected


@pytest.mark.parametrize("old_are_deleted", [False, True])
def test_swap_files_are_completed_at_load(tmp_path: Path, old_are_deleted: bool) -> None:
    """Kafka: LogCleanerTest.testRecoveryAfterCrash, cases two to four."""
    driven, before = interrupted(tmp_path)
    expected = final(stored(driven))
    move(tmp_path, ".cleaned", ".swap")
    if old_are_deleted:
        for name in before[: len(before) // 2]:
            if not name.startswith(f"{driven.log.active.base_offset:020d}"):
                (tmp_path / name).rename(tmp_path / f"{name}.deleted")
    complete_swaps(OsFileSystem(), str(tmp_path))
    assert {path.suffix for path in tmp_path.iterdir()} & {".cleaned", ".swap"} == set()
    opened = driven.reopen(was_clean=False, recovery_point=40)
    assert final(stored(opened)) == expected
    assert compaction.bases(opened.log) == [0, driven.log.active.base_offset]


def test_files_of_the_log_that_are_nobodys_segment_stay(tmp_path: Path) -> None:
    driven, _ = interrupted(tmp_path)
    move(tmp_path, ".cleaned", ".swap")
    kept = ["00000000000000000003.corrupt-77", "00000000000000000000.snapshot", "notes.txt", "quarantine-checkpoint"]
    for name in [*kept, "00000000000000000003.snapshot"]:
        (tmp_path / name).write_bytes(b"")
    complete_swaps(OsFileSystem(), str(tmp_path))
    present = {path.name for path in tmp_path.iterdir()}
    assert set(kept) <= present
    assert "00000000000000000003.snapshot" not in present
    driven.close_files()


def test_a_reader_of_an_old_snapshot_finishes_on_the_old_files(tmp_path: Path) -> None:
    driven = filled(tmp_path)
    snapshot = driven.log.snapshot()
    before = read_all(driven.fs, snapshot)
    compaction.clean(driven)
    assert read_all(driven.fs, snapshot) == before
    assert driven.log.snapshot().truncations > snapshot.truncations
    for doomed in driven.log.doomed:
        for path in doomed.paths:
            Path(path).unlink()
    with pytest.raises(SnapshotExpiredError):
        read_all(driven.fs, snapshot)


def test_a_segment_can_be_replaced_again_before_its_first_files_are_deleted(tmp_path: Path) -> None:
    """Snapshots of producers go with the segments that were merged."""
    driven = filled(tmp_path)
    driven.log.config = attrs.evolve(driven.log.config, segment_bytes=1 << 20)
    checkpoint = compaction.clean(driven).result.next_dirty_offset
    assert compaction.bases(driven.log) == [0, 40]
    assert sorted(path.name for path in tmp_path.glob("*.snapshot")) == ["00000000000000000040.snapshot"]
    put(driven, 3, "again")
    compaction.clean(driven, checkpoint)
    paths = [path for doomed in driven.log.doomed for path in doomed.paths]
    assert len(paths) == len(set(paths))
    assert all(Path(path).exists() and path.endswith(".deleted") for path in paths)


def cleaned_group(driven: DrivenLog) -> Any:
    job = plan_round(driven.log, drive(driven.fs, choose(driven.log, None, 0)), 0, map_bytes=MAP_BYTES)
    return job, next(clean(driven.fs, job)), driven.log.truncations


CHANGES: dict[str, Callable[[DrivenLog], object]] = {
    "truncated": lambda driven: driven.run(truncate_to(driven.log, 35)),
    r"cleanup\.policy": lambda driven: driven.run(reconfigure(driven.log, config=LogConfig(cleanup_policy=("delete",)))),
    "were removed": lambda driven: driven.run(driven.log.take_out([driven.log.segments.first])),
    "is gone": lambda driven: discard_cleaned(driven.fs, driven.log.directory),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_log_that_has_changed_meanwhile_keeps_its_segments(tmp_path: Path, change: str) -> None:
    """A record that was cut off was the reason to drop an older one. Who gives a round up deletes what it left; a replacement
    that was asked for before may still come."""
    driven = filled(tmp_path)
    job, group, truncations = cleaned_group(driven)
    CHANGES[change](driven)
    before = stored(driven)
    with pytest.raises(SegmentsChangedError, match=change):
        driven.run(replace_group(driven.log, job, group, truncations))
    with pytest.raises(SegmentsChangedError, match="no longer an inactive segment"):
        driven.run(replace_segments(driven.log, [group.cleaned], [driven.log.active]))
    assert stored(driven) == before


KEYS = st.integers(0, 5)
VALUES = st.one_of(st.none(), st.integers(0, 9))
RECORDS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)
PRODUCERS = st.integers(1, 3)

STEP = st.one_of(
    st.tuples(st.just("append"), RECORDS, st.sampled_from(CompressionType)),
    st.tuples(st.just("send"), PRODUCERS, RECORDS, st.sampled_from(CompressionType)),
    st.tuples(st.just("end"), PRODUCERS, st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("wait"), st.sampled_from([1, 60, 200])),
    st.tuples(st.just("clean"), st.sampled_from([24 * 11, 1 << 14])),
)

Record = tuple[int, bytes | None, bytes | None]
DELETE_RETENTION_MS = 100


@attrs.define
class History:
    """A log, and what was ever put into it."""

    driven: DrivenLog
    written: dict[int, Record] = attrs.field(factory=dict)
    aborted: set[int] = attrs.field(factory=set)
    open: dict[int, list[int]] = attrs.field(factory=dict)
    sequences: dict[int, int] = attrs.field(factory=dict)
    checkpoint: int | None = None

    def append(self, records: Sequence[tuple[int, int | None]], codec: CompressionType, **options: Any) -> list[int]:
        base = put_all(self.driven, records, timestamp=self.driven.clock(), compression_type=codec, **options)
        offsets = list(range(base, base + len(records)))
        for offset, (key, value) in zip(offsets, records, strict=True):
            self.written[offset] = offset, str(key).encode(), None if value is None else str(value).encode()
        return offsets

    def send(self, producer: int, records: Sequence[tuple[int, int | None]], codec: CompressionType) -> None:
        sequence = self.sequences.get(producer, 0)
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "is_transactional": True}
        self.open.setdefault(producer, []).extend(self.append(records, codec, **options))
        self.sequences[producer] = sequence + len(records)

    def end(self, producer: int, commit: bool) -> None:
        offsets = self.open.pop(producer, None)
        if offsets is not None:
            end_transaction(self.driven, producer, commit=commit)
            if not commit:
                self.aborted.update(offsets)

    def roll(self) -> None:
        if self.driven.log.active.size:
            self.driven.roll()

    def wait(self, ms: int) -> None:
        self.driven.clock.advance(ms)

    def clean(self, map_bytes: int) -> None:
        self.driven.flush()
        before, ends = self.read(Isolation.READ_UNCOMMITTED), self.ends()
        done = compact(self.driven.fs, self.driven.log, self.checkpoint, map_bytes=map_bytes)
        self.driven.close_files()
        after = self.read(Isolation.READ_UNCOMMITTED)
        assert self.ends() == ends
        assert [record for record in before if record in set(after)] == after, "offsets or order changed"
        if done is not None:
            assert self.checkpoint is None or done.result.next_dirty_offset > self.checkpoint
            self.checkpoint = done.result.next_dirty_offset
            self.check_clean(after, done.chosen.first_dirty_offset, self.checkpoint)

    def ends(self) -> tuple[int, int, int]:
        log = self.driven.log
        return log.last_stable_offset, log.high_watermark, log.log_end_offset

    def check_clean(self, after: list[Record], first_dirty: int, end: int) -> None:
        """Below `end`, a key that stands in the part that was dirty stands once."""
        seen: set[bytes | None] = set()
        for offset, key, _ in reversed([record for record in after if record[0] < end]):
            if offset >= first_dirty or key in seen:
                assert key not in seen, f"{key!r} at {offset} is superseded"
            seen.add(key)

    def read(self, isolation: Isolation) -> list[Record]:
        """Records as a consumer shows them: aborted ones left out as it does it, from the list and the markers."""
        return [(record.offset, record.key, record.value) for record in self.driven.records(isolation)]

    def check_views(self) -> None:
        """Whoever starts at 0 ends with the last value of every key, under both isolation levels."""
        log = self.driven.log
        for isolation, end in (
            (Isolation.READ_UNCOMMITTED, log.high_watermark),
            (Isolation.READ_COMMITTED, log.last_stable_offset),
        ):
            found = self.read(isolation)
            assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
            assert all(self.written[record[0]] == record for record in found)
            committed = [record for record in found if record[0] not in self.aborted]
            if isolation is Isolation.READ_COMMITTED:
                assert committed == found
            expected = [self.written[offset] for offset in sorted(self.written) if offset < end and offset not in self.aborted]
            assert _state(committed) == _state(expected)


def _state(records: Sequence[Record]) -> dict[bytes | None, bytes]:
    """What a table made of the records holds: a tombstone takes its key out."""
    last = {key: value for _, key, value in records}
    return {key: value for key, value in last.items() if value is not None}


@given(
    steps=st.lists(STEP, max_size=40),
    segment_bytes=st.sampled_from([250, 500, 100_000]),
    timestamp_type=st.sampled_from(TimestampType),
)
def test_a_reader_sees_the_last_value_of_every_key(steps: list[Any], segment_bytes: int, timestamp_type: TimestampType) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = LogConfig(
            cleanup_policy=("compact",),
            segment_bytes=segment_bytes,
            index_interval_bytes=60,
            delete_retention_ms=DELETE_RETENTION_MS,
            message_timestamp_type=timestamp_type,
            message_timestamp_after_max_ms=10**12,
        )
        history = History(open_driven(directory, config=config))
        for name, *arguments in steps:
            getattr(history, name)(*arguments)
        history.check_views()
        for producer in list(history.open):
            history.end(producer, commit=True)
        history.roll()
        for _ in range(3):
            history.clean(1 << 14)
            history.wait(DELETE_RETENTION_MS)
            history.check_views()
        history.driven.log.drop_maps()
