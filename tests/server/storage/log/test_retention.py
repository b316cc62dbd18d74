"""What a log lets go, why, and how much of it, what a power cut leaves of it, and what a hold keeps there up to its bounds."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from triolog.protocol.errors import ErrorCode, OffsetOutOfRangeError
from triolog.protocol.types import NO_TIMESTAMP
from triolog.server.config import LogConfig
from triolog.server.storage.disk.diskops import ListDirectory, RenameEach
from triolog.server.storage.log.derived_files import NOTHING_DROPPED, Dropped
from triolog.server.storage.log.leader_epochs import EpochEntry
from triolog.server.storage.log.retention import (
    NOTHING_HELD,
    expire_segments,
    increment_log_start_offset,
    is_past_bounds,
    is_wanted,
    let_go_below,
    lost_between,
    may_expire,
    oldest_first,
    take_out_below,
    unlink_doomed,
)
from triolog.server.storage.producers.producer_snapshots import list_snapshots

from tests.support.counts import counts
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.inline_log import make_on_device
from tests.support.logs import START_MS, DrivenLog, batch, open_driven, read_all

SIZE: Final = len(batch())
DAY_MS: Final = 86_400_000
PER_SEGMENT: Final = 5
ALL: Final = 1000


def log_of(directory: Path | str, records: int, *, timestamp: int = START_MS, **config: Any) -> DrivenLog:
    """One record a batch, five a segment; nothing expires unless `config` says so."""
    settings = {"segment_bytes": PER_SEGMENT * SIZE, "retention_ms": -1} | config
    fs = settings.pop("fs", None)
    driven = open_driven(directory, config=LogConfig(**settings), fs=fs)
    for _ in range(records):
        driven.append(batch(timestamp))
    return driven


def configure(driven: DrivenLog, **changes: Any) -> None:
    driven.log.config = attrs.evolve(driven.log.config, **changes)


def retain(driven: DrivenLog, held_from: int = NOTHING_HELD, **options: Any) -> int:
    """Both steps; answers how many segments were taken out."""
    log, now_ms = driven.log, driven.clock()
    looked = may_expire(log, now_ms, held_from=held_from, **options)
    driven.run(expire_segments(log, now_ms, held_from=held_from, **options))
    taken = driven.run(take_out_below(log, log.log_start_offset, most=ALL))
    assert looked or not taken, "the cheap look must see what the real one finds"
    log.check_invariant()
    return taken


def bases(driven: DrivenLog) -> list[int]:
    return [segment.base_offset for segment in driven.log.segments]


@pytest.mark.parametrize(("kept_records", "segments"), [(10, 2), (15, 3), (14, 3), (9, 2), (5, 1), (4, 1), (0, 1)])
def test_size_lets_go_what_leaves_at_least_that_much(tmp_path: Path, kept_records: int, segments: int) -> None:
    """Kafka: UnifiedLogTest.shouldDeleteSizeBasedSegments, shouldNotDeleteSizeBasedSegmentsWhenUnderRetentionSize,
    LogManagerTest.testCleanupSegmentsToMaintainSize."""
    driven = log_of(tmp_path, 15, retention_bytes=kept_records * SIZE)
    retain(driven)
    assert len(driven.log.segments) == segments
    assert driven.log.size_in_bytes >= kept_records * SIZE
    assert driven.offsets() == list(range(driven.log.log_start_offset, 15))


@pytest.mark.parametrize("retention_ms", [0, DAY_MS])
def test_a_segment_goes_when_its_newest_record_is_older_strictly(tmp_path: Path, retention_ms: int) -> None:
    driven = log_of(tmp_path, 15, retention_ms=retention_ms)
    driven.clock.now = START_MS + retention_ms
    assert retain(driven) == 0
    driven.clock.advance(1)
    assert retain(driven) == 3


def test_one_record_of_the_future_keeps_its_segment_and_all_later_ones(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 7, retention_ms=DAY_MS)
    driven.append(batch(START_MS + 3_600_000))
    for _ in range(7):
        driven.append(batch(START_MS))
    driven.clock.now = START_MS + DAY_MS + 1
    assert retain(driven) == 1
    assert bases(driven) == [5, 10]


def test_without_timestamps_the_files_time_counts(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 10, timestamp=NO_TIMESTAMP, retention_ms=DAY_MS)
    old, young = (segment.log.path for segment in driven.log.segments)
    os.utime(old, (1_000_000, 1_000_000))
    os.utime(young, (START_MS // 1000, START_MS // 1000))
    assert retain(driven) == 1
    assert bases(driven) == [5]


def test_with_a_clock_that_is_not_trusted_only_size_counts(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 15, retention_ms=1, retention_bytes=10 * SIZE)
    driven.clock.advance(365 * DAY_MS)
    driven.run(expire_segments(driven.log, driven.clock(), by_time=False))
    assert driven.run(take_out_below(driven.log, driven.log.log_start_offset, most=ALL)) == 1


def test_a_compacted_log_lets_nothing_go_for_age_or_size(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.shouldNotDeleteSegmentsWhenPolicyDoesNotIncludeDelete."""
    driven = log_of(tmp_path, 15, retention_ms=0, retention_bytes=0)
    configure(driven, cleanup_policy=("compact",))
    driven.clock.advance(DAY_MS)
    assert retain(driven) == 0
    configure(driven, cleanup_policy=("compact", "delete"))
    assert retain(driven) == 3


@pytest.mark.parametrize(("start", "gone"), [(4, 0), (5, 1), (9, 1), (10, 2), (14, 2), (15, 2)])
def test_the_log_start_takes_whole_closed_segments_whatever_the_policy(tmp_path: Path, start: int, gone: int) -> None:
    """Kafka: UnifiedLogTest.shouldDeleteStartOffsetBreachedSegmentsWhenPolicyDoesNotIncludeDelete."""
    driven = log_of(tmp_path, 15)
    configure(driven, cleanup_policy=("compact",))
    assert driven.run(increment_log_start_offset(driven.log, start))
    assert retain(driven) == gone
    assert driven.offsets() == list(range(start, 15))


def test_the_log_start_offset_only_grows_and_not_past_the_high_watermark(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testCannotIncrementLogStartOffsetPastHighWatermark."""
    driven = log_of(tmp_path, 25)
    with pytest.raises(OffsetOutOfRangeError, match="to 26, above the high watermark 25") as raised:
        driven.run(increment_log_start_offset(driven.log, 26))
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert driven.run(increment_log_start_offset(driven.log, 7))
    assert not driven.run(increment_log_start_offset(driven.log, 7))
    assert not driven.run(increment_log_start_offset(driven.log, 3))
    assert driven.log.log_start_offset == 7


def test_only_segments_wholly_below_the_high_watermark_go(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testCannotDeleteSegmentsAtOrAboveHighWatermark, testDeleteOldSegments."""
    driven = log_of(tmp_path, 100, retention_ms=1)
    driven.clock.advance(2)
    for high_watermark in range(101):
        segment = driven.log.segments.floor(high_watermark)
        assert segment is not None
        driven.log.set_high_watermark(high_watermark, segment.base_offset, (high_watermark - segment.base_offset) * SIZE)
        retain(driven)
        assert driven.log.log_start_offset <= driven.log.high_watermark
        assert driven.log.log_start_offset == high_watermark // PER_SEGMENT * PER_SEGMENT
    assert (bases(driven), driven.log.size_in_bytes) == ([100], 0)


def test_when_everything_goes_an_empty_segment_stays_and_the_epochs_collapse(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testDeleteOldSegments, testThatGarbageCollectingSegmentsDoesntChangeOffset."""
    driven = log_of(tmp_path, 100, retention_ms=1)
    driven.log.leader_epochs.clear()
    driven.log.leader_epochs.assign(0, 40)
    driven.log.leader_epochs.assign(1, 90)
    driven.clock.advance(2)
    assert retain(driven) == 20
    assert driven.log.leader_epochs.entries == (EpochEntry(1, 100),)
    assert retain(driven) == 0, "an empty segment is not given up"
    for was_clean in (False, True):
        assert (bases(driven), driven.log.log_start_offset, driven.log.log_end_offset) == ([100], 100, 100)
        if was_clean:
            driven.close()
        driven = driven.reopen(was_clean=was_clean)
    assert driven.append(batch()).base_offset == 100
    assert driven.offsets() == [100]


def test_the_active_segment_is_on_the_device_before_it_is_given_up(tmp_path: Path) -> None:
    fs = CrashFileSystem()
    driven = log_of("/log", 3, fs=fs, retention_ms=1)
    path = driven.log.active.log.path
    driven.clock.advance(2)
    assert driven.run(expire_segments(driven.log, driven.clock())) == 1
    assert fs.durable_content(path) == fs.content(path) != b""


def test_files_are_renamed_and_kept_for_the_delay(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testAsyncDelete."""
    driven = log_of(tmp_path, 15, retention_bytes=5 * SIZE, file_delete_delay_ms=1000)
    snapshot = driven.log.snapshot()
    assert retain(driven) == 2
    assert [record.offset for record in read_all(driven.fs, snapshot)] == list(range(15)), "one taken before still reads them"
    deleted = sorted(path.name for path in tmp_path.glob("*.deleted"))
    assert [name for name in deleted if ".log" in name] == [f"{base:020d}.log.deleted" for base in (0, 5)]
    assert [doomed.due_ms for doomed in driven.log.doomed] == [START_MS + 1000] * 2
    assert sorted(Path(path).name for doomed in driven.log.doomed for path in doomed.paths) == deleted
    assert not [path for path in tmp_path.glob("0000000000000000000[05].*") if path.suffix != ".deleted"]


def test_taking_out_goes_in_pieces_of_the_size_asked_for_up_to_the_offset_on_the_device(tmp_path: Path) -> None:
    """Someone else may have raised the log start offset since, and not written it yet."""
    driven = log_of(tmp_path, 50)
    driven.run(increment_log_start_offset(driven.log, 50))
    assert driven.run(take_out_below(driven.log, 11, most=ALL)) == 2
    assert [driven.run(take_out_below(driven.log, driven.log.log_start_offset, most=4)) for _ in range(3)] == [4, 3, 0]
    assert bases(driven) == [45]


def test_taking_many_segments_out_is_one_operation(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 50, retention_bytes=0)
    driven.run(expire_segments(driven.log, driven.clock()))
    procedure = take_out_below(driven.log, driven.log.log_start_offset, most=ALL)
    operation = next(procedure)
    assert isinstance(operation, RenameEach)
    look = procedure.send(operation.run(driven.fs))
    assert isinstance(look, ListDirectory), "for what damage left beside them"
    with pytest.raises(StopIteration) as stop:
        procedure.send(look.run(driven.fs))
    assert stop.value.value == 10


@given(st.integers(0, 2**32), st.integers(0, 60))
def test_without_a_checkpoint_a_power_cut_leaves_a_log_that_starts_later_and_has_no_hole(seed: int, changes: int) -> None:
    fs = CrashFileSystem()
    make_on_device(fs, "/data/topic-0")
    driven = log_of("/data/topic-0", 33, fs=fs, retention_bytes=8 * SIZE)
    driven.flush()
    fs.sync_directory("/data/topic-0")
    driven.run(expire_segments(driven.log, driven.clock()))
    assert driven.run(let_go_below(driven.log, driven.log.log_start_offset)) == 5
    fs.cut_after(changes)
    is_done = False
    with contextlib.suppress(PowerCut):
        unlink_doomed(fs, driven.log.doomed, durable=True)
        is_done = True
    fs.cut_after(None)
    reopened = open_driven("/data/topic-0", fs=fs.crash(random.Random(seed)), config=driven.log.config, was_clean=False)
    log_start = reopened.log.log_start_offset
    assert log_start in (range(0, 26, 5) if not is_done else (25,))
    assert (reopened.log.log_end_offset, reopened.offsets()) == (33, list(range(log_start, 33)))
    assert reopened.append(batch()).base_offset == 33


@pytest.mark.parametrize(("operation", "skipped"), [("write", 0), ("sync", 0), ("sync", 1), ("sync", 2)])
def test_the_active_segment_stays_when_there_is_no_space_for_another_one(operation: str, skipped: int) -> None:
    """Nor for what it has on its way to the device (simulation, seed 102563)."""
    fs = CrashFileSystem()
    driven = log_of("/topic-0", 23, fs=fs, retention_bytes=0)
    fs.fail_next(operation, errno.ENOSPC, skip=skipped)
    assert driven.run(expire_segments(driven.log, driven.clock())) == 4
    assert (driven.log.log_start_offset, driven.log.log_end_offset) == (20, 23)
    assert driven.run(expire_segments(driven.log, driven.clock())) == 5
    assert driven.log.log_start_offset == 23


def test_what_lies_beside_a_segment_goes_with_it(tmp_path: Path) -> None:
    """What damage left, and a snapshot from its middle: a start writes one wherever the log ends. None is missed that vanished.
    Kafka: ProducerStateManagerTest.testRemoveAndMarkSnapshotForDeletionAlreadyDeleted."""
    driven = log_of(tmp_path, 15)
    (tmp_path / f"{5:020d}.snapshot").unlink()
    for name in (f"{7:020d}.snapshot", f"{12:020d}.snapshot", f"{0:020d}.log.corrupt-72", f"{10:020d}.log.corrupt-0"):
        (tmp_path / name).write_bytes(b"")
    driven.run(increment_log_start_offset(driven.log, 10))
    assert retain(driven) == 2
    assert driven.run(list_snapshots(str(tmp_path))) == [10, 12]
    doomed = [Path(path).name for doomed in driven.log.doomed for path in doomed.paths]
    gone = [name for name in doomed if "snapshot" in name or "corrupt" in name]
    assert sorted(gone) == [f"{0:020d}.log.corrupt-72.deleted", f"{7:020d}.snapshot.deleted"]
    assert (tmp_path / f"{10:020d}.log.corrupt-0").exists()


SEGMENT: Final = PER_SEGMENT * SIZE


def held_log_of(directory: Path | str, records: int, **keys: Any) -> DrivenLog:
    """One record a batch, five a segment; retention wants all of it a moment later."""
    texts = {"segment.bytes": SEGMENT, "retention.ms": 1} | {key.replace("_", "."): value for key, value in keys.items()}
    driven = open_driven(directory, config=LogConfig().overlay({key: str(value) for key, value in texts.items()}))
    for _ in range(records):
        driven.append(batch())
    driven.clock.advance(DAY_MS)
    return driven


def retain_held(driven: DrivenLog, held_from: int, **options: Any) -> int:
    """Answers the log start offset."""
    retain(driven, held_from, **options)
    return driven.log.log_start_offset


def test_what_was_deleted_on_request_goes_whoever_needs_it(tmp_path: Path) -> None:
    driven = held_log_of(tmp_path, 17)
    driven.run(increment_log_start_offset(driven.log, 12))
    assert retain_held(driven, 0) == 12
    assert driven.log.segments.first.base_offset == 10


def test_where_appends_are_refused_past_the_bounds_nothing_goes(tmp_path: Path) -> None:
    driven = held_log_of(tmp_path, 20, **{"retention.hold.max.bytes": 5 * SIZE})
    assert retain_held(driven, 7) == 5
    assert is_past_bounds(driven.log, 7, driven.clock())
    assert is_wanted(driven.log, driven.clock())
    assert not is_past_bounds(driven.log, 10, driven.clock()), "the oldest segment is not held any more"


def test_what_is_lost_is_counted_by_offsets_and_by_its_share_of_the_bytes(tmp_path: Path) -> None:
    log = held_log_of(tmp_path, 12).log
    assert lost_between(log, 3, 3) is None
    assert lost_between(log, 5, 3) is None
    for start, end in ((0, 12), (3, 10), (7, 8), (11, 12)):
        lost = lost_between(log, start, end)
        assert lost is not None
        assert (lost.first_offset, lost.end_offset, lost.records) == (start, end, end - start)
        assert lost.size_bytes == (end - start) * SIZE


def test_what_was_dropped_is_known_after_a_restart_with_the_last_gap(tmp_path: Path) -> None:
    driven = held_log_of(tmp_path, 20, **{"retention.hold.max.bytes": 5 * SIZE, "disk.full.policy": "drop-oldest"})
    driven.run(increment_log_start_offset(driven.log, 3))
    assert driven.log.derived.dropped == NOTHING_DROPPED, "somebody asked for that"
    retain_held(driven, 7)
    assert driven.log.derived.dropped == Dropped(8, 8 * SIZE, 7, 15)
    assert driven.reopen(was_clean=False).log.derived.dropped == Dropped(8, 8 * SIZE, 7, 15)
    driven.close()
    driven = driven.reopen(was_clean=True)
    for _ in range(5):
        driven.append(batch())
    assert retain_held(driven, 16) == 20
    assert driven.log.derived.dropped == Dropped(12, 12 * SIZE, 16, 20)


def test_a_full_disk_takes_first_what_was_handed_on_then_by_priority_then_what_nobody_holds(tmp_path: Path) -> None:
    forwarded = held_log_of(tmp_path / "forwarded", 15, **{"retention.hold.groups": "up", "disk.full.priority": 9})
    plain = held_log_of(tmp_path / "plain", 15, **{"disk.full.priority": 1})
    held = held_log_of(tmp_path / "held", 15, **{"retention.hold.groups": "up", "disk.full.priority": 1})
    least = held_log_of(tmp_path / "least", 15, **{"retention.hold.groups": "up"})
    logs, held_from = [each.log for each in (forwarded, plain, held, least)], [5, NOTHING_HELD, 0, 0]
    order = [{0: 5}, {0: 5, 3: 5}, {0: 5, 3: 10}, {0: 5, 1: 5, 3: 10}, {0: 5, 1: 10, 3: 10}]
    order += [{0: 5, 1: 10, 2: 5, 3: 10}, {0: 5, 1: 10, 2: 10, 3: 10}, {0: 10, 1: 10, 2: 10, 3: 10}]
    assert [oldest_first(logs, segments * SEGMENT, held_from) for segments in range(1, 9)] == order
    assert oldest_first(logs, 2**60, held_from) == order[-1], "active segments stay"
    plain.log.set_high_watermark(7, 5, 2 * SIZE)
    assert oldest_first(logs, 2**60, held_from) == {**order[-1], 1: 5}, "and what lies above the high watermark"
    assert oldest_first([], 1) == {}


@attrs.define(eq=False)
class ModelLog:
    """Every record as (timestamp, number of its segment), by offset from `start` on."""

    config: LogConfig
    records: list[tuple[int, int]] = attrs.field(factory=list)
    start: int = 0
    committed: int = 0
    segment: int = 0
    dropped: int = 0
    """Went, and was not committed."""

    def append(self, timestamp: int) -> None:
        if len([None for _, segment in self.records if segment == self.segment]) == PER_SEGMENT:
            self.segment += 1
        self.records.append((timestamp, self.segment))

    def offsets_of(self, segment: int) -> list[int]:
        return [offset for offset, (_, each) in enumerate(self.records) if each == segment]

    def stored(self) -> Iterator[int]:
        """The segments that are there."""
        first = self.records[self.start][1] if self.start < len(self.records) else self.segment + 1
        return iter(range(first, self.segment + 1))

    def newest(self, segment: int) -> int:
        return max(self.records[offset][0] for offset in self.offsets_of(segment))

    def is_held(self, segment: int) -> bool:
        return self.committed <= self.offsets_of(segment)[-1]

    def bytes_behind(self, segment: int) -> int:
        return SIZE * (len(self.records) - 1 - self.offsets_of(segment)[-1])

    def retain(self, now_ms: int) -> None:
        for segment in self.stored():
            age, behind = now_ms - self.newest(segment), self.bytes_behind(segment)
            is_wanted = age > self.config.retention_ms >= 0 or behind >= self.config.retention_bytes >= 0
            bounds = self.config.retention_hold_max_ms, self.config.retention_hold_max_bytes
            is_past = age > bounds[0] >= 0 or behind >= bounds[1] >= 0
            drops = self.config.disk_full_policy.value == "drop-oldest"
            if not is_wanted or (self.is_held(segment) and not (is_past and drops)):
                return
            self.take(segment)

    def take(self, segment: int) -> None:
        end = self.offsets_of(segment)[-1] + 1
        self.dropped += max(0, end - max(self.start, self.committed))
        self.start = end
        if segment == self.segment:
            self.segment += 1


def give_up(models: list[ModelLog], needed_bytes: int) -> None:
    while needed_bytes > 0:
        oldest: list[tuple[Any, int, int]] = []
        for place, model in enumerate(models):
            segment = next((each for each in model.stored() if each != model.segment), None)
            if segment is not None:
                held = model.is_held(segment)
                oldest.append(((held, model.config.disk_full_priority, model.newest(segment)), place, segment))
        if not oldest:
            return
        _, place, segment = min(oldest)
        needed_bytes -= SIZE * len(models[place].offsets_of(segment))
        models[place].take(segment)


drawn_configs = st.fixed_dictionaries(
    {
        "segment.bytes": st.just(SEGMENT),
        "retention.ms": st.sampled_from([-1, 0, 50]),
        "retention.bytes": st.sampled_from([-1, 0, 7 * SIZE]),
        "retention.hold.groups": st.just("up"),
        "retention.hold.max.ms": st.sampled_from([-1, 0, 80, 200]),
        "retention.hold.max.bytes": st.sampled_from([-1, 0, 10 * SIZE, 15 * SIZE]),
        "disk.full.policy": st.sampled_from(["refuse", "drop-oldest", "drop-oldest"]),
        "disk.full.priority": st.integers(0, 1),
    }
)


class HoldMachine(RuleBasedStateMachine):
    """Two logs of one device. What was committed, what is there and what was dropped add up to what was appended."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="triolog-hold-"))
        self.now_ms = START_MS

    @initialize(keys=st.tuples(drawn_configs, drawn_configs))
    def create(self, keys: tuple[dict[str, Any], dict[str, Any]]) -> None:
        self.logs, self.models = [], []
        for number, each in enumerate(keys):
            config = LogConfig().overlay({key: str(value) for key, value in each.items()})
            self.logs.append(open_driven(self.folder / f"{number}", config=config))
            self.models.append(ModelLog(config))

    @rule(number=st.integers(0, 1), count=st.integers(1, 12))
    def append(self, number: int, count: int) -> None:
        for _ in range(count):
            self.logs[number].append(batch(self.now_ms))
            self.models[number].append(self.now_ms)

    @rule(number=st.integers(0, 1), data=st.data())
    def commit(self, number: int, data: st.DataObject) -> None:
        """A group may also go back, and commit below what is there."""
        self.models[number].committed = data.draw(st.integers(0, len(self.models[number].records)))

    @rule(ms=st.integers(1, 90))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule(number=st.integers(0, 1))
    def retain(self, number: int) -> None:
        model, driven = self.models[number], self.logs[number]
        driven.clock.now = self.now_ms
        retain_held(driven, model.committed)
        model.retain(self.now_ms)

    @rule(needed_bytes=st.integers(1, 6 * SEGMENT))
    def fill_the_disk(self, needed_bytes: int) -> None:
        offsets = oldest_first([each.log for each in self.logs], needed_bytes, [each.committed for each in self.models])
        for number, offset in offsets.items():
            driven, committed = self.logs[number], self.models[number].committed
            driven.run(increment_log_start_offset(driven.log, offset, held_from=committed))
            driven.run(take_out_below(driven.log, offset, most=1000))
        give_up(self.models, needed_bytes)

    @invariant()
    def they_agree(self) -> None:
        for driven, model in zip(getattr(self, "logs", ()), getattr(self, "models", ()), strict=True):
            assert driven.log.log_start_offset == model.start
            assert driven.log.log_end_offset == len(model.records)
            assert driven.log.derived.dropped.records == model.dropped

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


TestHolds = HoldMachine.TestCase
TestHolds.settings = settings(max_examples=counts(400), stateful_step_count=30, deadline=None)
