"""A log against a list: any history of appends, rolls, cuts and accidents, and every answer is that of a scan.

`CrashingLog` runs on the file system that keeps only what was synced, with full devices, kills and power cuts, also in the
middle of an operation. `RealLog` runs the histories without power cuts on the real one. Before some starts a derived file gets
another content; the arguments of the rule have its seed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from triolog.protocol.errors import CorruptRecordError, InvalidRecordError, RecordBatchTooLargeError, RequestError
from triolog.protocol.limits import INT64_MAX
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import AppendResult, CompressionType, TimestampType
from triolog.server.config import LogConfig
from triolog.server.storage.disk.filesystem import FileSystem, OsFileSystem
from triolog.server.storage.disk.memory_overlay import MOST_TAIL_BYTES
from triolog.server.storage.errors import CheckpointError, SnapshotExpiredError
from triolog.server.storage.log.append import AppendPlan
from triolog.server.storage.log.changes import truncate_fully_and_start_at, truncate_to
from triolog.server.storage.log.derived_files import read_facts
from triolog.server.storage.log.gaps import gap_at
from triolog.server.storage.log.log import FlushPlan, Log, LogSnapshot
from triolog.server.storage.log.prepare import PreparedAppend, prepare_append
from triolog.server.storage.log.retention import expire_segments

from tests.support.altered_files import alter_one
from tests.support.counts import counts
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.inline_log import ORDERS, InlineLog, make_on_device
from tests.support.model_log import (
    ModelBatch,
    ModelLog,
    NewRecord,
    check_everything,
    check_indexes,
    check_lookup,
    check_read,
    questions,
)

STEPS: Final = 40
FAR: Final = 2**60

timestamps = st.one_of(st.integers(-1, 12), st.integers(95, 110), st.sampled_from([-1, 0, 1_000, 1_001, 10**12, FAR]))
records: st.SearchStrategy[NewRecord] = st.tuples(
    timestamps, st.one_of(st.none(), st.binary(max_size=4)), st.one_of(st.none(), st.binary(max_size=50))
)
Batch = tuple[CompressionType, list[NewRecord]]
batches: st.SearchStrategy[Batch] = st.tuples(
    st.one_of(st.just(CompressionType.NONE), st.sampled_from(CompressionType)), st.lists(records, min_size=1, max_size=4)
)
alterations = st.one_of(st.none(), st.integers(0, 2**32))
"""Seeds of what is done to a derived file; None: nothing."""
groups = st.lists(st.lists(batches, min_size=1, max_size=3), min_size=1, max_size=5)
Group = list[list[Batch]]
configs = st.builds(
    LogConfig,
    segment_bytes=st.integers(200, 2000),
    segment_ms=st.sampled_from([1, 5, 100, INT64_MAX]),
    segment_jitter_ms=st.sampled_from([0, 0, 3]),
    segment_index_bytes=st.integers(24, 200),
    index_interval_bytes=st.one_of(st.just(0), st.integers(0, 300)),
    preallocate=st.booleans(),
    message_timestamp_type=st.sampled_from(
        [TimestampType.CREATE_TIME, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]
    ),
    message_timestamp_after_max_ms=st.just(INT64_MAX),
)


@attrs.define(eq=False)
class Kept:
    """A snapshot taken earlier and the model as it was then."""

    snapshot: LogSnapshot
    model: ModelLog


def appended(batches: Iterable[ModelBatch]) -> list[ModelBatch]:
    """Without those that cover a gap: recovery writes, takes out and writes anew as it needs them."""
    return [batch for batch in batches if batch.gap_from is None]


class LogMachine(RuleBasedStateMachine):
    """Rules that every file system can go through."""

    fs: FileSystem
    directory: str
    inline: InlineLog

    def __init__(self) -> None:
        super().__init__()
        self.model = ModelLog()
        self.now_ms = 1_000
        self.promised = 0
        """Everything below was said to be on the device."""
        self.checkpoint = 0
        """The recovery point as it was last written down."""
        self.in_flight: list[ModelBatch] = []
        """What a write that has not come back would store."""
        self.kept: list[Kept] = []
        self.queue: Group = []
        self.flushing: tuple[FlushPlan, bool] | None = None
        """A flush that was planned and not committed, and whether its operations were executed."""
        self.was_altered = False

    @property
    def log(self) -> Log:
        return self.inline.log

    def make_file_system(self) -> None:
        raise NotImplementedError

    @initialize(config=configs)
    def create(self, config: LogConfig) -> None:
        self.config = config
        self.make_file_system()
        self.open(was_clean=False)

    def open(self, *, was_clean: bool) -> None:
        options = {"recovery_point": self.checkpoint, "log_start_offset": self.model.log_start_offset}
        options |= {"was_clean": was_clean}
        self.inline = InlineLog.open_orders(self.fs, self.directory, self.config, lambda: self.now_ms, **options)
        self.kept.clear()
        self.flushing = None

    def alter(self, seed: int | None) -> None:
        """Between the end of a process and the next start."""
        if seed is not None:
            self.was_altered = True
            note(f"altered {alter_one(self.fs, self.directory, random.Random(seed), self.may_alter)}")

    def may_alter(self, path: str) -> bool:
        """Whether it is the only loss: of an index that is searched there are facts, or it is compared with every batch."""
        stem, suffix = os.path.splitext(path)
        if suffix not in (".index", ".timeindex"):
            return True
        try:
            facts = read_facts(self.fs, self.directory)
        except (CheckpointError, ValueError):
            return False
        is_known = facts is not None and int(os.path.basename(stem)) in facts.lookups
        return is_known or not self.fs.file_size(f"{stem}.index")

    @rule(group=groups, sync=st.booleans(), publish=st.booleans())
    def append(self, group: Group, sync: bool, publish: bool) -> None:
        """One group commit. Without `sync` and `publish` the high watermark stays behind until the next flush."""
        self.queue = list(group)
        self.answers: list[AppendResult | None] = []
        appends = [self.prepared(append) for append in group]
        answers = self.inline.append(appends, sync=sync, planned=self.planned, committed=self.committed)
        for answer, expected in zip(answers, self.answers, strict=True):
            assert answer == expected if expected is not None else isinstance(answer, RecordBatchTooLargeError)
        if sync or publish:
            self.log.high_watermark_to_end()
            self.model.high_watermark = self.model.log_end_offset

    def prepared(self, append: list[Batch]) -> PreparedAppend:
        data = b"".join(build_batch([(*record, ()) for record in chosen], compression_type=codec) for codec, chosen in append)
        return prepare_append(data, ORDERS, self.config, now_ms=self.now_ms)

    def planned(self, plan: AppendPlan) -> None:
        """Compare every answer of the plan with the list's numbering, and remember what the write is about to store."""
        append_time = self.now_ms if self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME else None
        self.in_flight = []
        end = self.model.copy()
        assert len(plan.answers) == plan.taken
        for append, answer in zip(self.queue, plan.answers, strict=False):
            if self.prepared(append).size > self.config.segment_bytes:
                self.answers.append(None)
                continue
            assert isinstance(answer, AppendResult)
            stored = end.numbered([chosen for _, chosen in append], append_time)
            end.append(stored)
            self.in_flight += stored
            time = -1 if append_time is None else append_time
            first, last = stored[0].base_offset, end.log_end_offset - 1
            self.answers.append(AppendResult(first, last, time, self.model.log_start_offset))

    def committed(self, plan: AppendPlan) -> None:
        self.model.append(self.in_flight)
        self.in_flight = []
        del self.queue[: plan.taken]
        if plan.sync and plan.writes:
            self.promised = self.model.log_end_offset

    @rule()
    def flush(self) -> None:
        self.inline.flush()
        self.promised = self.model.high_watermark = self.model.log_end_offset

    @precondition(lambda self: self.flushing is None)
    @rule(syncs_at_once=st.booleans())
    def start_flush(self, syncs_at_once: bool) -> None:
        """A flush in the background: the log goes on before it is committed."""
        plan = self.log.plan_flush()
        if syncs_at_once:
            self.inline.execute(plan.operations, plan.files)
        self.flushing = plan, syncs_at_once

    @precondition(lambda self: self.flushing is not None)
    @rule()
    def finish_flush(self) -> None:
        assert self.flushing is not None
        plan, is_synced = self.flushing
        self.flushing = None
        if not is_synced:
            self.inline.execute(plan.operations, plan.files)
        self.log.commit_flush(plan)
        assert self.log.recovery_point <= max(self.promised, plan.offset)
        self.promised = self.log.recovery_point

    def wait_for_flush(self) -> None:
        """A flush that has not synced yet is done before files are replaced: it and whoever replaces them hold one lock."""
        if self.flushing is not None and not self.flushing[1]:
            self.finish_flush()

    @rule()
    def write_checkpoint(self) -> None:
        self.checkpoint = self.log.recovery_point

    @rule(ms=st.one_of(st.integers(-3, 20), st.sampled_from([150, 10**9])))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def roll(self) -> None:
        self.inline.run(self.log.roll())
        assert self.log.active.base_offset == self.model.log_end_offset
        assert not self.log.active.size

    @rule(data=st.data())
    def raise_log_start_offset(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.model.log_start_offset, self.model.high_watermark))
        self.log.log_start_offset = self.model.log_start_offset = offset
        self.log.changed()

    @rule(retention_ms=st.one_of(st.integers(0, 20), st.sampled_from([900, 10**9])))
    def expire(self, retention_ms: int) -> None:
        """Retention by time deletes the segments that a scan finds too old, and no other. Their files stay."""
        self.wait_for_flush()
        start = self.model.log_start_offset
        for segment in list(self.log.segments):
            following = self.log.segments.higher(segment.base_offset)
            end = self.model.log_end_offset if following is None else following.base_offset
            if following is None or end > self.model.log_start_offset:
                batches = iter_batches(self.inline.content(segment.log.path)[: segment.size])
                largest = max((header.max_timestamp for header, _ in batches), default=-1)
                if not 0 <= largest < self.now_ms - retention_ms or end > self.model.high_watermark:
                    break
            start = max(start, end)
        self.log.config = attrs.evolve(self.config, retention_ms=retention_ms)
        self.inline.run(expire_segments(self.log, self.now_ms))
        self.log.config = self.config
        if start > self.model.log_start_offset:
            self.model.log_start_offset = start
            self.promised = max(self.promised, start)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self.truncate_at(data.draw(st.integers(0, self.model.log_end_offset + 1)))

    def truncate_at(self, offset: int) -> None:
        self.wait_for_flush()
        first = self.log.segments.first.base_offset
        was_cut = self.inline.run(truncate_to(self.log, offset))
        if offset < first:
            assert was_cut
            self.model.truncate_fully_and_start_at(offset)
        else:
            assert was_cut == self.model.truncate_to(offset)
        self.promised, self.checkpoint = min(self.promised, offset), min(self.checkpoint, offset)

    @rule(offset=st.integers(0, 100))
    def truncate_fully(self, offset: int) -> None:
        self.wait_for_flush()
        self.inline.run(truncate_fully_and_start_at(self.log, offset))
        self.model.truncate_fully_and_start_at(offset)
        self.promised, self.checkpoint = min(self.promised, offset), min(self.checkpoint, offset)

    @rule(maps=st.booleans())
    def close_descriptors(self, maps: bool) -> None:
        self.inline.close_descriptors(maps=maps)

    @rule()
    def delete_doomed_files(self) -> None:
        self.flushing = None
        self.inline.delete_doomed()

    @rule(data=st.data(), max_bytes=st.one_of(st.integers(0, 400), st.just(1 << 20)))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.model.log_start_offset, self.model.log_end_offset))
        check_read(self.fs, self.log.snapshot(), self.model, offset, max_bytes)

    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        stamps = {record.timestamp for batch in self.model.batches for record in batch.records}
        timestamp = data.draw(st.sampled_from([-1, -2, -3, *questions(stamps)]))
        check_lookup(self.fs, self.log.snapshot(), self.model, timestamp)

    @rule()
    def keep_snapshot(self) -> None:
        self.kept.append(Kept(self.log.snapshot(), self.model.copy()))
        del self.kept[:-3]

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def use_kept_snapshot(self, data: st.DataObject) -> None:
        """It answers as on its day, until the log was cut back: then it may fail, and its count of truncations tells."""
        kept = data.draw(st.sampled_from(self.kept))
        try:
            check_everything(self.fs, kept.snapshot, kept.model)
        except (AssertionError, SnapshotExpiredError, CorruptRecordError, InvalidRecordError):
            if kept.snapshot.truncations == self.log.truncations:
                raise

    @rule(altered=alterations)
    def restart(self, altered: int | None = None) -> None:
        self.inline.close()
        assert self.log.recovery_point == self.log.log_end_offset
        self.alter(altered)
        self.open(was_clean=True)
        self.check_reopened(self.model.batches)

    @rule(altered=alterations)
    def restart_after_a_kill(self, altered: int | None = None) -> None:
        """The process is gone, the kernel is not: all written bytes are there, indexes are as they were."""
        self.inline.close_descriptors()
        self.alter(altered)
        self.open(was_clean=False)
        self.check_reopened(self.model.batches)

    def stored(self) -> list[ModelBatch]:
        """What the files hold. A control batch is recovery's, and each of its offsets is reported as lost."""
        stored = []
        for header, records in self.inline.stored():
            offsets = range(max(header.base_offset, self.log.log_start_offset), header.next_offset)
            is_lost = all(gap_at(self.log.gaps, offset) is not None for offset in offsets)
            assert is_lost or not header.is_control, f"{header} lies in no gap"
            stored.append(ModelBatch(records, header.base_offset if header.is_control else None))
        return stored

    def check_reopened(self, expected: list[ModelBatch]) -> None:
        """The files hold `expected`, the log says so, and all of it is promised from now on."""
        found = self.stored()
        stored, expected = appended(found), appended(expected)
        if not stored and all(batch.next_offset <= self.model.log_start_offset for batch in expected):
            expected = []  # the log ended before its log start offset, so it goes on empty
        assert stored == expected
        self.model.reopen(found, self.log.active.base_offset)
        self.promised = self.model.log_end_offset
        self.checkpoint = min(self.checkpoint, self.promised)
        self.check_all()

    @rule()
    def check_all(self) -> None:
        self.log.check_invariant()
        check_everything(self.fs, self.log.snapshot(), self.model)
        check_indexes(self.inline, was_altered=self.was_altered)

    @invariant()
    def offsets_agree(self) -> None:
        log, model = self.log, self.model
        log.check_invariant()
        assert (log.log_start_offset, log.high_watermark) == (model.log_start_offset, model.high_watermark)
        assert log.log_end_offset == model.log_end_offset
        assert log.recovery_point == self.promised
        most = self.config.segment_bytes + MOST_TAIL_BYTES * any(batch.gap_from is not None for batch in model.batches)
        assert all(segment.size <= most for segment in log.segments)

    def teardown(self) -> None:
        if hasattr(self, "inline"):
            self.inline.close_descriptors()


class RealLogMachine(LogMachine):
    """On the disk of this machine."""

    def make_file_system(self) -> None:
        self.fs = OsFileSystem()
        self.directory = tempfile.mkdtemp(prefix="triolog-model-")

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            if hasattr(self, "directory"):
                shutil.rmtree(self.directory)


class CrashingLogMachine(LogMachine):
    """On a disk that forgets, fills up and fails."""

    fs: CrashFileSystem

    def make_file_system(self) -> None:
        self.fs = CrashFileSystem(page_bytes=64)
        self.directory = "/data/orders-0"
        make_on_device(self.fs, self.directory)

    @rule(group=groups, sync=st.booleans(), after_bytes=st.integers(0, 600))
    def append_on_a_full_device(self, group: Group, sync: bool, after_bytes: int) -> None:
        """What did not fit is gone without a trace; the log goes on."""
        self.fs.fail_next("write", errno.ENOSPC, after_bytes=after_bytes)
        try:
            self.append(group, sync, publish=False)
        except OSError:
            self.in_flight = []
        self.fs.forget_failures()
        check_everything(self.fs, self.log.snapshot(), self.model)

    @rule(operation=st.sampled_from(["open", "write", "truncate", "sync_directory"]), skip=st.integers(0, 3))
    def roll_on_a_failing_device(self, operation: str, skip: int) -> None:
        """A roll that fails leaves a log that answers and can be rolled again."""
        self.inline.close_descriptors()
        self.fs.fail_next(operation, errno.EIO, skip=skip)
        with contextlib.suppress(OSError):
            self.roll()
        self.fs.forget_failures()
        check_everything(self.fs, self.log.snapshot(), self.model)
        self.roll()

    @rule(seed=st.integers(0, 2**32), again_after=st.one_of(st.none(), st.integers(0, 30)), altered=alterations)
    def power_cut(self, seed: int, again_after: int | None, altered: int | None = None) -> None:
        """What was promised survives, of the rest in each segment a prefix of whole batches, or more behind a reported gap.

        Of two unsynced segments the later one can reach the disk first: then it stays, as in Kafka, behind a gap. And a
        log that now ends before its log start offset goes on empty: nothing readable was left of it.
        A second cut during recovery changes nothing of that.
        """
        rng = random.Random(seed)
        written = [*self.model.batches, *self.in_flight]
        self.crash(rng)
        if again_after is not None:
            self.fs.cut_after(again_after)
            try:
                self.open(was_clean=False)
            except PowerCut:
                self.crash(rng)
        self.fs.cut_after(None)
        self.alter(altered)
        self.open(was_clean=False)
        stored = self.stored()
        self.check_survivors(stored, written)
        self.in_flight = []
        self.check_reopened(stored)

    def check_survivors(self, stored: list[ModelBatch], written: list[ModelBatch]) -> None:
        stored, written = appended(stored), appended(written)
        assert [batch for batch in written if batch in stored] == stored
        start = self.model.log_start_offset
        lost = [batch for batch in written if batch not in stored and batch.next_offset > start]
        missed = [batch for batch in lost if batch.next_offset <= self.promised]
        assert not missed, f"{missed} was promised below {self.promised}"
        bases = [segment.base_offset for segment in self.log.segments]
        for batch in lost:
            behind = [other.base_offset for other in stored if other.base_offset > batch.base_offset]
            is_reported = gap_at(self.log.gaps, batch.base_offset) is not None
            assert not behind or is_reported or any(batch.base_offset < base <= behind[0] for base in bases), f"a hole: {batch}"

    def crash(self, rng: random.Random) -> None:
        self.fs = self.fs.crash(rng)
        for file in self.log.files():
            file.fd = None

    @rule(seed=st.integers(0, 2**32), altered=alterations)
    def power_cut_after_a_clean_stop(self, seed: int, altered: int | None = None) -> None:
        self.inline.close()
        self.promised = self.model.log_end_offset
        self.crash(random.Random(seed))
        self.alter(altered)
        self.open(was_clean=True)
        stored = self.stored()
        self.check_survivors(stored, self.model.batches)
        self.check_reopened(stored)

    @rule(
        deed=st.sampled_from(["append", "append", "flush", "roll", "restart", "restart_after_a_kill"]),
        group=groups,
        sync=st.booleans(),
        changes=st.integers(0, 20),
        seed=st.integers(0, 2**32),
    )
    def power_cut_during(self, deed: str, group: Group, sync: bool, changes: int, seed: int) -> None:
        deeds: dict[str, Callable[[], Any]] = {
            "append": lambda: self.append(group, sync, publish=True),
            "flush": self.flush,
            "roll": self.roll,
            "restart": self.restart,
            "restart_after_a_kill": self.restart_after_a_kill,
        }
        self.fs.cut_after(changes)
        try:
            deeds[deed]()
        except PowerCut:
            self.power_cut(seed, None)
        self.fs.cut_after(None)

    @rule(data=st.data(), changes=st.integers(0, 20), seed=st.integers(0, 2**32))
    def power_cut_during_truncation(self, data: st.DataObject, changes: int, seed: int) -> None:
        """What lies below the cut and was promised survives; of what lies behind any batches may."""
        offset = data.draw(st.integers(self.log.segments.first.base_offset, self.model.log_end_offset))
        written = list(self.model.batches)
        self.fs.cut_after(changes)
        try:
            self.truncate_at(offset)
        except PowerCut:
            self.crash(random.Random(seed))
            self.checkpoint = min(self.checkpoint, offset)
            self.open(was_clean=False)
            stored = self.stored()
            written = appended(written)
            assert [batch for batch in written if batch in stored] == appended(stored)
            end = min(offset, self.promised)
            lost = [batch for batch in written if batch not in stored]
            assert not [batch for batch in lost if self.model.log_start_offset < batch.next_offset <= end]
            self.check_reopened(stored)
        self.fs.cut_after(None)

    @invariant()
    def closed_segments_below_the_recovery_point_are_on_the_device(self) -> None:
        """Recovery does not look at them. An index without a name would be missed, and rebuilt. Segments that lie wholly below
        the log start offset wait for their deletion, and need not be there."""
        closed = list(self.log.segments)[:-1]
        for segment, following in zip(closed, list(self.log.segments)[1:], strict=True):
            if self.log.log_start_offset < following.base_offset <= self.log.recovery_point:
                assert self.fs.durable_content(segment.log.path) == self.fs.content(segment.log.path)
                for index in segment.indexes:
                    assert self.fs.durable_content(index.path) in (None, self.fs.content(index.path))

    @invariant()
    def no_descriptor_is_lost(self) -> None:
        held = {file.fd for file in self.log.files()} - {None}
        assert self.fs.open_descriptors == len(held)


TestRealLog = RealLogMachine.TestCase
TestRealLog.settings = settings(max_examples=counts(60), stateful_step_count=STEPS)
TestCrashingLog = pytest.mark.timeout(300 + counts(1000))(CrashingLogMachine.TestCase)  # 150 s of an idle core when full
TestCrashingLog.settings = settings(max_examples=counts(1000), stateful_step_count=STEPS)


def _crashing(config: LogConfig) -> CrashingLogMachine:
    machine = CrashingLogMachine()
    machine.create(config)
    return machine


@pytest.mark.parametrize("rolls_during_the_flush", [False, True])
def test_the_recovery_point_passes_a_closed_segment_only_with_its_indexes(rolls_during_the_flush: bool) -> None:
    machine = _crashing(LogConfig(index_interval_bytes=0))
    group: Group = [[(CompressionType.NONE, [(timestamp, None, None)])] for timestamp in (5, 6, 7)]
    machine.append(group, False, False)
    machine.start_flush(True) if rolls_during_the_flush else machine.roll()
    machine.roll() if rolls_during_the_flush else machine.start_flush(True)
    machine.finish_flush()
    machine.closed_segments_below_the_recovery_point_are_on_the_device()
    closed = machine.log.segments.first
    if rolls_during_the_flush:
        assert machine.log.recovery_point == closed.base_offset
        machine.flush()
    assert machine.log.recovery_point == 3
    for index in closed.indexes:
        assert index.entries
        assert machine.fs.durable_content(index.path) == machine.fs.content(index.path)
    machine.teardown()


def test_a_log_that_was_cut_below_its_start_begins_there_after_a_power_cut() -> None:
    """What the partition keeps of its log start offset beside the checkpoint is the larger one then, and out of date."""
    group: Group = [[(CompressionType.NONE, [(0, None, None)] * 6)]]
    for seed in range(8):
        machine = _crashing(LogConfig())
        machine.append(group, True, True)
        machine.log.log_start_offset = machine.model.log_start_offset = 5
        machine.log.changed()
        machine.power_cut_after_a_clean_stop(seed)
        machine.truncate_at(0)
        machine.append(group, True, True)
        machine.power_cut(seed, None)
        assert machine.log.log_start_offset == 0, seed
        machine.teardown()


@given(
    configs,
    st.lists(groups, min_size=1, max_size=5).map(lambda drawn: [append for group in drawn for append in group]),
    st.lists(st.integers(1, 7), min_size=1),
    st.booleans(),
)
def test_a_group_writes_and_answers_what_its_appends_do(config: LogConfig, drawn: Group, sizes: list[int], sync: bool) -> None:
    config = attrs.evolve(config, segment_jitter_ms=0)
    alone, grouped = _crashing(config), _crashing(config)
    appends, told = [alone.prepared(append) for append in drawn], []
    for machine in (alone, grouped):
        answers: list[AppendResult | RequestError] = []
        while len(answers) < len(appends):
            size = 1 if machine is alone else sizes[len(answers) % len(sizes)]
            answers += machine.inline.append(appends[len(answers) : len(answers) + size], sync=sync and machine is grouped)
        told.append([each if isinstance(each, AppendResult) else (type(each), each.message) for each in answers])
    assert told[0] == told[1]
    for _ in range(2):
        files = [
            {name: machine.fs.content(f"{machine.directory}/{name}") for name in machine.fs.list_directory(machine.directory)}
            for machine in (alone, grouped)
        ]
        assert files[0] == files[1]
        for machine in (alone, grouped):
            machine.inline.close()
