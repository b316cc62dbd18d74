"""The whole life of a log against a list: producers and transactions, retention, delete records, compaction, truncation, clean
stops, kills and power cuts between and during all of it.

The disk is the file system that keeps only what was synced. What the log may drop is stated, everything else must be there:
compaction drops what a later committed record of the same key replaces, what was aborted, tombstones and markers; a power cut
drops what was not promised. `TRIOLOG_TEST_LIFE_SEEDS=10000` runs as many histories, each of which a seed repeats.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.errors import InvalidTxnStateError, OutOfOrderSequenceError, TriologError
from triolog.protocol.records.batch import BatchHeader
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.control import ControlRecordType, control_record_type
from triolog.protocol.types import LATEST_TIMESTAMP, NO_PRODUCER_ID, AppendResult, Isolation
from triolog.server.config import LogConfig
from triolog.server.offline.compact_directory import compact
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.log.changes import truncate_to
from triolog.server.storage.log.derived_files import FILE_NAME as DERIVED_FILE
from triolog.server.storage.log.gaps import gap_at
from triolog.server.storage.log.log import Log
from triolog.server.storage.log.prepare import PreparedAppend, prepare_append, prepare_marker
from triolog.server.storage.log.retention import expire_segments, increment_log_start_offset, take_out_below
from triolog.server.storage.lookups.timestamps import offset_for_timestamp

from tests.server.offline.test_verify import damages_below
from tests.support.altered_files import alter_one
from tests.support.counts import counts, session_seed
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.inline_log import ORDERS, InlineLog, make_on_device
from tests.support.logs import START_MS, read_all

SEEDS: Final = int(os.environ.get("TRIOLOG_TEST_LIFE_SEEDS", 0)) or counts(500)
FAILING_SEEDS: Final = int(os.environ.get("TRIOLOG_TEST_LIFE_SEEDS", 0)) or counts(400)
FIRST_SEED: Final = int(os.environ.get("TRIOLOG_TEST_LIFE_SEED") or session_seed())
STEPS: Final = 60
KEYS: Final = [b"a", b"b", b"c", b"d"]
IN_FLIGHT: Final = 5
"""Batches of a producer that are known again."""
PRODUCERS: Final = [1, 2, 3]
DIRECTORY: Final = "/data/orders-0"


@attrs.frozen
class Stored:
    """One offset of the log."""

    offset: int
    kind: str
    """`data`, `commit`, `abort`, or `empty` for a batch that compaction has left without records."""
    producer_id: int
    sequence: int
    transactional: bool
    key: bytes | None = None
    value: bytes | None = None


@attrs.define(eq=False)
class Life:
    """One history. `steps` says what happened, for whoever looks at a failure."""

    seed: int
    rng: random.Random = attrs.field(init=False)
    losses: random.Random = attrs.field(init=False)
    """Of its own: what is lost makes no difference to what is done."""
    fs: CrashFileSystem = attrs.field(factory=lambda: CrashFileSystem(page_bytes=64))
    stored: list[Stored] = attrs.field(factory=list)
    """What is in the files."""
    history: list[Stored] = attrs.field(factory=list)
    """What was ever stored and not cut off or lost: how transactions went, when their records are gone."""
    inline: InlineLog = attrs.field(init=False)
    config: LogConfig = attrs.field(init=False)
    now_ms: int = START_MS
    promised: int = 0
    """Below this everything was said to be on the device."""
    recovery_checkpoint: int = 0
    start_checkpoint: int = 0
    cleaner_checkpoint: int | None = None
    compacted: bool = False
    is_cutting: bool = False
    """Whether the power fails during what is done."""
    in_flight: list[Stored] = attrs.field(factory=list)
    steps: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.rng, self.losses = random.Random(self.seed), random.Random(self.seed)
        self.config = LogConfig(
            segment_bytes=self.rng.randint(200, 700),
            segment_index_bytes=self.rng.choice([60, 400]),
            index_interval_bytes=self.rng.choice([0, 100, 300]),
            cleanup_policy=("compact", "delete"),
            delete_retention_ms=self.rng.choice([0, 50]),
            retention_ms=-1,
            message_timestamp_after_max_ms=2**62,
            preallocate=self.rng.random() < 0.2,
        )
        make_on_device(self.fs, DIRECTORY)
        self.open(was_clean=False)

    @property
    def log(self) -> Log:
        return self.inline.log

    def open(self, *, was_clean: bool) -> None:
        options = {
            "recovery_point": self.recovery_checkpoint,
            "log_start_offset": self.start_checkpoint,
            "was_clean": was_clean,
        }
        self.inline = InlineLog.open_orders(self.fs, DIRECTORY, self.config, lambda: self.now_ms, **options)

    def append(self) -> None:
        """A group of plain, idempotent and transactional records and markers."""
        group: list[PreparedAppend] = []
        expected: list[Stored] = []
        offset = self.log.log_end_offset
        open_by = self.log.producers.ongoing
        sequences = {pid: self.next_sequence(pid) for pid in PRODUCERS}
        for _ in range(self.rng.randint(1, 5)):
            pid = self.rng.choice([-1, *PRODUCERS])
            if pid > 0 and self.rng.random() < 0.3:
                commit = self.rng.random() < 0.5
                group.append(
                    prepare_marker(producer_id=pid, producer_epoch=0, commit=commit, coordinator_epoch=0, now_ms=self.now_ms)
                )
                expected.append(Stored(offset, "commit" if commit else "abort", pid, -1, True))
                open_by.pop(pid, None)
            else:
                one = self.record(offset, pid, sequences.get(pid, -1), pid > 0 and (pid in open_by or self.rng.random() < 0.5))
                if pid > 0:
                    sequences[pid] += 1
                if one.transactional:
                    open_by.setdefault(pid, offset)
                group.append(self.prepared(one))
                expected.append(one)
            offset += 1
        sync = self.rng.random() < 0.5
        self.in_flight = list(expected)
        answers = self.inline.append(group, sync=sync, committed=lambda plan: self.committed(plan.taken, sync))
        assert [answer.base_offset for answer in answers if isinstance(answer, AppendResult)] == [
            one.offset for one in expected
        ]
        if sync or self.rng.random() < 0.7:
            self.log.high_watermark_to_end()

    def committed(self, taken: int, sync: bool) -> None:
        self.stored += self.in_flight[:taken]
        self.history += self.in_flight[:taken]
        del self.in_flight[:taken]
        if sync and taken:
            self.promised = self.log.log_end_offset

    def record(self, offset: int, pid: int, sequence: int, transactional: bool) -> Stored:
        value = None if self.rng.random() < 0.2 else self.rng.randbytes(self.rng.randint(0, 40))
        return Stored(offset, "data", pid, sequence if pid > 0 else -1, transactional, self.rng.choice(KEYS), value)

    def prepared(self, one: Stored) -> PreparedAppend:
        options: dict[str, Any] = {}
        if one.producer_id > 0:
            options = {
                "producer_id": one.producer_id,
                "producer_epoch": 0,
                "base_sequence": one.sequence,
                "is_transactional": one.transactional,
            }
        data = build_batch([(self.now_ms + one.offset, one.key, one.value, ())], **options)
        return prepare_append(data, ORDERS, self.config, now_ms=self.now_ms)

    def resend(self) -> None:
        """The newest records of a producer, once more: they are known again, whatever the log has been through."""
        pid = self.rng.choice(PRODUCERS)
        there = {one.offset for one in self.stored if one.kind == "data" and one.offset >= self.log.log_start_offset}
        for one in [one for one in self.history if one.producer_id == pid and one.kind == "data"][-IN_FLIGHT:]:
            if one.offset in there:
                (answer,) = self.inline.append([self.prepared(one)])
                assert isinstance(answer, AppendResult), answer
                assert answer.base_offset == one.offset
        mine = [one for one in self.stored if one.producer_id == pid and one.kind in ("data", "empty")]
        if not mine or mine[-1].kind == "empty" or mine[-1].offset < self.log.log_start_offset:
            return
        before = self.log.log_end_offset
        (answer,) = self.inline.append([self.prepared(mine[-1])])
        assert isinstance(answer, AppendResult), answer
        assert (answer.base_offset, self.log.log_end_offset) == (mine[-1].offset, before)
        (answer,) = self.inline.append([self.prepared(attrs.evolve(mine[-1], sequence=mine[-1].sequence + 7))])
        assert isinstance(answer, OutOfOrderSequenceError | InvalidTxnStateError), answer

    def flush(self) -> None:
        self.inline.flush()
        self.promised = self.log.log_end_offset

    def roll(self) -> None:
        self.inline.run(self.log.roll())

    def write_checkpoint(self) -> None:
        self.recovery_checkpoint, self.start_checkpoint = self.log.recovery_point, self.log.log_start_offset

    def pass_time(self) -> None:
        self.now_ms += self.rng.choice([1, 40, 100])

    def delete_records(self) -> None:
        offset = self.rng.randint(self.log.log_start_offset, self.log.high_watermark)
        self.inline.run(increment_log_start_offset(self.log, offset))
        self.after_log_start()

    def retain(self) -> None:
        self.log.config = attrs.evolve(self.config, retention_bytes=self.rng.randint(0, 2000))
        self.inline.run(expire_segments(self.log, self.now_ms))
        self.log.config = self.config
        self.after_log_start()

    def after_log_start(self) -> None:
        """The checkpoint is written, then files go, as the manager does it."""
        self.start_checkpoint = self.log.log_start_offset
        self.promised = max(self.promised, self.log.recovery_point)
        self.inline.run(take_out_below(self.log, self.log.log_start_offset, most=self.rng.choice([1, 100])))

    def compact(self) -> None:
        self.compacted = True
        self.inline.close_descriptors()
        try:
            done = compact(self.fs, self.log, self.cleaner_checkpoint, map_bytes=self.rng.choice([400, 1 << 20]))
        finally:
            if not self.fs.is_off:
                self.inline.close_descriptors(maps=False)
        if done is not None:
            self.cleaner_checkpoint = done.result.next_dirty_offset
            self.take_over_what_is_there(lost_from=None)

    def truncate(self) -> None:
        """Never below what was compacted: what replaced a dropped record must stay."""
        floor = max(self.log.high_watermark if self.compacted else 0, self.log.log_start_offset)
        offset = self.rng.randint(floor, max(floor, self.log.log_end_offset))
        self.promised = min(self.promised, offset)
        self.recovery_checkpoint = min(self.recovery_checkpoint, offset)
        if self.inline.run(truncate_to(self.log, offset)):
            self.stored = [one for one in self.stored if one.offset < offset]
            self.history = [one for one in self.history if one.offset < offset]

    def delete_doomed(self) -> None:
        self.inline.delete_doomed()

    def restart(self) -> None:
        self.inline.close()
        self.promised = self.recovery_checkpoint = self.log.log_end_offset
        self.start_checkpoint = self.log.log_start_offset
        if not self.is_cutting:
            self.lose_what_is_kept_twice()
        self.reopen(was_clean=True)
        self.take_over_what_is_there(lost_from=None)
        self.start_checkpoint = self.log.log_start_offset

    def lose_what_is_kept_twice(self) -> None:
        """A line of the log start checkpoint, a transaction index, what lies beside a snapshot, or what is known of derived
        files; or a derived file has another content: one of these at a time."""
        names = self.fs.list_directory(DIRECTORY)
        kind = self.losses.choice(["nothing", "line", ".txnindex", ".batches", DERIVED_FILE, "altered"])
        if kind == "altered":
            self.alter_a_derived_file()
        elif kind == "line":
            self.start_checkpoint = 0
        elif lost := [name for name in names if name.endswith(kind)]:
            self.fs.unlink(f"{DIRECTORY}/{self.losses.choice(lost)}")

    def alter_a_derived_file(self) -> None:
        self.steps.append(f"  altered {alter_one(self.fs, DIRECTORY, self.losses)}")

    def kill(self) -> None:
        """The process is gone, the kernel is not: everything written is there, checkpoints are old."""
        self.inline.close_descriptors()
        if not self.is_cutting and self.losses.random() < 0.5:
            self.alter_a_derived_file()
        self.reopen(was_clean=False)
        self.take_over_what_is_there(lost_from=None)
        self.promised = self.log.log_end_offset

    def reopen(self, *, was_clean: bool) -> None:
        self.log.drop_maps()
        self.open(was_clean=was_clean)

    def power_cut(self) -> None:
        self.stored += self.in_flight
        self.history += self.in_flight
        self.in_flight = []
        self.crash()
        if self.rng.random() < 0.3:
            self.fs.cut_after(self.rng.randint(0, 40))
            try:
                self.open(was_clean=False)
            except PowerCut:
                self.crash()
            self.fs.cut_after(None)
        if self.losses.random() < 0.5:
            self.alter_a_derived_file()
        self.open(was_clean=False)
        self.take_over_what_is_there(lost_from=self.promised)
        self.promised = self.log.log_end_offset

    def crash(self) -> None:
        self.fs = self.fs.crash(self.rng)
        for file in self.log.files():
            file.fd = None

    def power_cut_during(self) -> None:
        deed = self.rng.choice(
            [
                *(self.append, self.flush, self.roll, self.delete_records, self.retain, self.compact, self.compact),
                *(self.truncate, self.restart, self.kill, self.delete_doomed),
            ]
        )
        self.steps.append(f"  during {deed.__name__}")
        self.fs.cut_after(self.rng.randint(0, 30))
        self.is_cutting = True
        try:
            deed()
        except PowerCut:
            self.power_cut()
        self.is_cutting = False
        self.fs.cut_after(None)

    def take_over_what_is_there(self, *, lost_from: int | None) -> None:
        """Compare the files with the list, and go on with what they hold. `lost_from`: from there on a power cut may have
        taken records."""
        known = {one.offset: one for one in self.stored}
        # Below the log start offset nothing is promised: a power cut takes renames back, and the segments may be torn.
        start = self.log.log_start_offset
        there = [one for one in self.read_files() if one.offset >= start or known.get(one.offset) == one]
        for one in there:
            if one.kind == "empty":
                assert known[one.offset].producer_id == one.producer_id
            else:
                assert known[one.offset] == one, f"{one} was stored as {known.get(one.offset)}"
        offsets = {one.offset for one in there}
        for one in self.stored:
            if one.offset in offsets or one.offset < self.log.log_start_offset:
                continue
            if lost_from is not None and one.offset >= lost_from:
                continue
            assert self.compacted, f"{one} is missing"
            assert self.may_be_dropped(one, there), f"{one} is missing, and nothing replaces it"
        self.stored = there
        if lost_from is not None:
            self.history = [one for one in self.history if one.offset < lost_from or one.offset in offsets]

    def may_be_dropped(self, one: Stored, there: list[Stored]) -> bool:
        if one.kind != "data" or one.value is None or self.fate(one) == "abort":
            return True
        return any(
            other.key == one.key and other.offset > one.offset and other.kind == "data" and self.fate(other) == "commit"
            for other in there
        )

    def read_files(self) -> Iterable[Stored]:
        for header, records in self.inline.stored():
            pid, transactional = header.producer_id, header.is_transactional
            if self.covers_a_gap(header):
                continue
            if not records:
                yield Stored(header.last_offset, "empty", pid, header.base_sequence, transactional)
            for record in records:
                if header.is_control:
                    is_commit = control_record_type(record.key) is ControlRecordType.COMMIT
                    yield Stored(record.offset, "commit" if is_commit else "abort", pid, -1, True)
                else:
                    yield Stored(record.offset, "data", pid, header.base_sequence, transactional, record.key, record.value)

    def covers_a_gap(self, header: BatchHeader) -> bool:
        """Whether recovery wrote it: nobody did, and all of its offsets are reported as lost."""
        if not header.is_control or header.producer_id != NO_PRODUCER_ID:
            return False
        offsets = range(max(header.base_offset, self.log.log_start_offset), header.next_offset)
        assert all(gap_at(self.log.gaps, offset) is not None for offset in offsets), f"{header} lies in no gap"
        return True

    def open_transactions(self, start: int = 0) -> dict[int, int]:
        """First offset by producer, of what was stored from `start` on."""
        firsts: dict[int, int] = {}
        for one in self.history:
            if one.offset < start:
                continue
            if one.kind in ("commit", "abort"):
                firsts.pop(one.producer_id, None)
            elif one.transactional:
                firsts.setdefault(one.producer_id, one.offset)
        return firsts

    def fate(self, one: Stored) -> str:
        """How the transaction of a record has ended: `commit` also for what is in none, `open`."""
        if not one.transactional:
            return "commit"
        ends = [o.kind for o in self.history if o.offset > one.offset and o.producer_id == one.producer_id]
        return next((kind for kind in ends if kind in ("commit", "abort")), "open")

    def next_sequence(self, pid: int) -> int:
        entry = self.log.producers.entries.get(pid)
        return 0 if entry is None else entry.last_sequence + 1

    def check(self) -> None:
        log = self.log
        log.check_invariant()
        assert log.recovery_point <= max(self.promised, log.log_start_offset) or log.recovery_point == log.log_end_offset
        start, high = log.log_start_offset, log.high_watermark
        readable = [one for one in self.stored if one.kind == "data" and start <= one.offset < high]
        assert self.read(Isolation.READ_UNCOMMITTED) == [(one.offset, one.key, one.value) for one in readable]
        if not any(one.kind in ("commit", "abort") and one.offset >= high for one in self.stored):
            # A transaction of which all records are deleted may be forgotten at a restart.
            expected = [
                max(min((first for first in firsts.values() if first < high), default=high), start)
                for firsts in (self.open_transactions(0), self.open_transactions(start))
            ]
            assert log.last_stable_offset in expected, f"{log.last_stable_offset}, not {expected}"
        stable = log.last_stable_offset
        committed = [one for one in readable if one.offset < stable and self.fate(one) == "commit"]
        assert self.read(Isolation.READ_COMMITTED) == [(one.offset, one.key, one.value) for one in committed]
        for isolation, end in ((Isolation.READ_UNCOMMITTED, high), (Isolation.READ_COMMITTED, stable)):
            assert drive(self.fs, offset_for_timestamp(log.snapshot(), LATEST_TIMESTAMP, isolation)).offset == end

    def read(self, isolation: Isolation) -> list[tuple[int, bytes | None, bytes | None]]:
        records = read_all(
            self.fs, self.log.snapshot(), max_bytes=self.rng.choice([1, 300]), isolation=isolation, skip_gaps=True
        )
        return [(record.offset, record.key, record.value) for record in records]

    def deeds(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            (12, self.append),
            (2, self.resend),
            (3, self.flush),
            (3, self.roll),
            (2, self.write_checkpoint),
            (2, self.pass_time),
            (1, self.delete_records),
            (1, self.retain),
            (3, self.compact),
            (1, self.truncate),
            (2, self.delete_doomed),
            (1, self.restart),
            (1, self.kill),
            (1, self.power_cut),
            (3, self.power_cut_during),
        ]

    def run(self) -> None:
        deeds = self.deeds()
        weights = [weight for weight, _ in deeds]
        for _ in range(STEPS):
            ((_, deed),) = self.rng.choices(deeds, weights)
            self.steps.append(deed.__name__)
            deed()
            self.check()
        self.inline.close_descriptors()


def live(kind: type[Life], seeds: range) -> None:
    for seed in seeds:
        life = kind(seed)
        try:
            life.run()
        except (AssertionError, TriologError, OSError, ValueError, KeyError) as exc:
            last = "\n".join(life.steps[-16:])
            repeats = f"TRIOLOG_TEST_LIFE_SEED={seed} TRIOLOG_TEST_LIFE_SEEDS=1 repeats it"
            raise AssertionError(f"{repeats}; the last steps were\n{last}") from exc


@pytest.mark.parametrize("chunk", range(10))
def test_every_history_keeps_what_it_promised(chunk: int) -> None:
    live(Life, range(FIRST_SEED + chunk * SEEDS // 10, FIRST_SEED + (chunk + 1) * SEEDS // 10))


@attrs.define(eq=False)
class FailingLife(Life):
    """A history on a device that refuses a sync now and then. The server restarts, and the power cut comes later, if at all."""

    def failed_sync_during(self) -> None:
        deed = self.rng.choice(
            [
                *(self.append, self.append, self.flush, self.roll, self.compact),
                *(self.truncate, self.restart, self.kill, self.delete_records),
            ]
        )
        self.steps.append(f"  during {deed.__name__}")
        self.fs.fail_next("sync", errno.EIO, skip=self.rng.choice([0, 0, 1, 2, 4, 8]))
        try:
            deed()
        except OSError:
            self.start_again()
        self.fs.forget_failures()

    def start_again(self) -> None:
        self.steps.append("  it failed")
        self.stored += self.in_flight
        self.history += self.in_flight
        self.in_flight = []
        self.fs.end_process()
        for file in self.log.files():
            file.fd = None
        if self.rng.random() < 0.3:
            self.fs.drop_caches(self.rng)
        self.reopen(was_clean=False)
        self.take_over_what_is_there(lost_from=self.promised)
        self.promised = self.log.log_end_offset

    def lose_what_is_kept_twice(self) -> None:
        """Nothing: of what a device refused to take a second time there may be one only."""

    def deeds(self) -> list[tuple[int, Callable[[], None]]]:
        return [*super().deeds(), (6, self.failed_sync_during), (2, self.power_cut)]


@pytest.mark.parametrize("chunk", range(4))
def test_every_history_with_failed_syncs_keeps_what_it_promised(chunk: int) -> None:
    """Without a power cut between the failure and the restart, and with one at any time behind it."""
    live(FailingLife, range(FIRST_SEED + chunk * FAILING_SEEDS // 4, FIRST_SEED + (chunk + 1) * FAILING_SEEDS // 4))


@attrs.define(eq=False)
class HealthyLife(Life):
    """A history on a device that loses nothing: after a clean stop the log is healthy, wherever its start was raised to."""

    def lose_what_is_kept_twice(self) -> None:
        assert damages_below(self.fs, DIRECTORY, self.log.log_start_offset) == []

    def alter_a_derived_file(self) -> None:
        """Nothing is altered."""

    def deeds(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            *((12, self.append), (3, self.roll), (2, self.write_checkpoint), (2, self.delete_records)),
            *((1, self.retain), (2, self.delete_doomed), (2, self.kill), (2, self.restart)),
        ]


def test_a_history_of_transactions_kills_and_deletions_leaves_no_damage() -> None:
    live(HealthyLife, range(20))


FAILED_ONCE: Final = (
    *(10_123, 11_448, 12_191, 12_490, 13_587, 14_247, 14_876),
    *(32_294, 35_254, 36_836, 37_942, 41_449, 56_338, 61_416),
)


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_histories_that_failed_once_go_well(seed: int) -> None:
    """A marker lost to damage, a snapshot that went with a segment of its name, one that was thought to be there, entries of
    a transaction index that came back behind a cut, a marker of which a cut log forgot that it is not on the device."""
    Life(seed).run()
