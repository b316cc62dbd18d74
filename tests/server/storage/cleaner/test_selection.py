"""Which logs are cleaned and from where; what the cleaner's process says, line by line; and processes that work for a server:
they end with it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from triolog.server.config import LogConfig
from triolog.server.storage.child_process import ParentWatch, ServerGoneError
from triolog.server.storage.cleaner.__main__ import clean_for_server
from triolog.server.storage.cleaner.job import CleaningJob
from triolog.server.storage.cleaner.selection import (
    CleanableOffsets,
    LogToClean,
    choose,
    cleanable_offsets,
    log_to_clean,
    plan_round,
)
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.log.changes import truncate_to

from tests.server.offline.test_verify import flip
from tests.support.compaction import end_transaction, put, put_all
from tests.support.logs import START_MS, DrivenLog, open_driven

HOUR_MS = 3_600_000


def log_of(directory: Path, segments: int = 5, *, step_ms: int = HOUR_MS, **config: Any) -> DrivenLog:
    """Segments of two records each, an hour apart, and an empty active one; all on the device."""
    config["message_timestamp_after_max_ms"] = 100 * HOUR_MS
    driven = open_driven(directory, config=LogConfig(cleanup_policy=("compact",), **config))
    for number in range(segments):
        for record in range(2):
            put(driven, record, number, timestamp=START_MS + number * step_ms)
        driven.roll()
    driven.flush()
    return driven


def chosen(driven: DrivenLog, checkpoint: int | None, now_ms: int = START_MS + 10 * HOUR_MS) -> LogToClean:
    try:
        return driven.run(choose(driven.log, checkpoint, now_ms))
    finally:
        driven.log.drop_maps()


def test_a_log_that_was_never_cleaned_is_dirty_from_its_start_to_its_active_segment(tmp_path: Path) -> None:
    """Kafka: LogCleanerManagerTest.testCleanableOffsetsForNone."""
    nothing = chosen(open_driven(tmp_path / "empty"), None)
    assert (nothing.dirty_ratio, nothing.is_due(0.0)) == (0.0, False)
    driven = log_of(tmp_path)
    assert cleanable_offsets(driven.log, None, 0) == CleanableOffsets(0, 10, is_reset=False)
    assert chosen(driven, None).dirty_ratio == 1.0
    assert not chosen(driven, None).is_due(1.0)
    put(driven, 1, 1)
    assert cleanable_offsets(driven.log, 4, 0) == CleanableOffsets(4, 10, is_reset=False)
    driven.run(driven.log.close())


@pytest.mark.parametrize("high_watermark", [5, 6])
def test_nothing_from_the_high_watermark_on_is_cleaned(tmp_path: Path, high_watermark: int) -> None:
    """Kafka: LogCleanerManagerTest.testCleanableOffsetsForNone: the bound is the last stable offset; segments round it down."""
    driven = log_of(tmp_path)
    driven.log.set_high_watermark(high_watermark, 4, 0)
    offsets = cleanable_offsets(driven.log, None, 0)
    assert offsets.first_uncleanable_offset == high_watermark
    assert log_to_clean(driven.log, offsets).end_offset == (4 if high_watermark == 5 else 6)


def test_nothing_above_the_recovery_point_is_cleaned(tmp_path: Path) -> None:
    """A new value that a power cut can take back is no reason to drop the old one."""
    driven = log_of(tmp_path)
    driven.log.recovery_point = 7
    assert chosen(driven, None).end_offset == 6
    driven.log.sync_metadata = False
    assert chosen(driven, None).end_offset == 10


def test_undecided_transactions_hold_the_end_back(tmp_path: Path) -> None:
    """Kafka: LogCleanerManagerTest.testUndecidedTransactionalDataNotCleanable."""
    driven = open_driven(tmp_path, config=LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=HOUR_MS))
    options: dict[str, Any] = {"producer_id": 15, "producer_epoch": 0, "is_transactional": True}
    put_all(driven, [(1, "a")], **options, base_sequence=0)
    put_all(driven, [(2, "b")], **options, base_sequence=1)
    put_all(driven, [(3, "c")], **options, base_sequence=2)
    driven.roll()
    driven.flush()
    driven.clock.advance(HOUR_MS + 1)
    assert cleanable_offsets(driven.log, 0, driven.clock()).first_uncleanable_offset == 0
    end_transaction(driven, 15, commit=False)
    driven.roll()
    driven.flush()
    driven.log.set_high_watermark(4, 4, 0)
    assert cleanable_offsets(driven.log, 0, driven.clock()).first_uncleanable_offset == 3, "the marker's segment is young"
    driven.clock.advance(HOUR_MS + 1)
    assert cleanable_offsets(driven.log, 0, driven.clock()).first_uncleanable_offset == 4


@pytest.mark.parametrize("is_cut_behind_it", [False, True])
def test_a_transaction_whose_marker_is_not_on_the_device_holds_the_end_back(tmp_path: Path, is_cut_behind_it: bool) -> None:
    """Its records are on the device, but a power cut could open it again, and then it may be aborted.

    Also where the producer snapshot that a cut log goes on from knows it as ended.
    """
    driven = open_driven(tmp_path, config=LogConfig(cleanup_policy=("compact",)))
    put(driven, 1, "old")
    put(driven, 1, "new", producer_id=15, producer_epoch=0, base_sequence=0, is_transactional=True)
    driven.roll()
    driven.flush()
    end_transaction(driven, 15, commit=True)
    driven.roll()
    if is_cut_behind_it:
        put(driven, 2, "cut off")
        driven.run(truncate_to(driven.log, 3))
    assert (driven.log.recovery_point, driven.log.last_stable_offset) == (2, 3)
    assert cleanable_offsets(driven.log, None, 0).first_uncleanable_offset == 1
    driven.flush()
    assert cleanable_offsets(driven.log, None, 0).first_uncleanable_offset == 3


@pytest.mark.parametrize(
    ("lag_hours", "checkpoint", "end"), [(1, 0, 8), (3, 0, 4), (4, 0, 2), (100, 0, 0), (0, 0, 10), (3, 6, 6)]
)
def test_dirty_segments_younger_than_the_lag_wait(tmp_path: Path, lag_hours: int, checkpoint: int, end: int) -> None:
    """Kafka: LogCleanerManagerTest.testCleanableOffsetsForTime, testCleanableOffsetsForShortTime."""
    driven = log_of(tmp_path, min_compaction_lag_ms=lag_hours * HOUR_MS)
    assert cleanable_offsets(driven.log, checkpoint, START_MS + 4 * HOUR_MS).first_uncleanable_offset == end


@pytest.mark.parametrize("checkpoint", [3, 11])
def test_a_checkpoint_outside_of_the_log_is_reset_to_its_start(tmp_path: Path, checkpoint: int) -> None:
    """Kafka: LogCleanerManagerTest.testDirtyOffsetResetIfLargerThanEndOffset, testDirtyOffsetResetIfSmallerThanStartOffset."""
    driven = log_of(tmp_path)
    driven.log.log_start_offset = 4
    assert cleanable_offsets(driven.log, checkpoint, 0) == CleanableOffsets(4, 10, is_reset=True)
    for inside in (4, 10):
        assert cleanable_offsets(driven.log, inside, 0) == CleanableOffsets(inside, 10, is_reset=False)


def test_the_ratio_is_of_bytes_and_the_active_segment_does_not_count(tmp_path: Path) -> None:
    """Kafka: LogToClean.cleanableRatio."""
    driven = log_of(tmp_path)
    put(driven, 1, "x" * 10_000)
    driven.flush()
    found = chosen(driven, 6)
    assert found.clean_bytes == 3 * found.cleanable_bytes / 2
    assert found.dirty_ratio == pytest.approx(0.4)
    assert found.is_due(0.39)
    assert not found.is_due(found.dirty_ratio)
    driven.run(driven.log.close())


def test_an_old_dirty_record_makes_a_log_due_whatever_its_ratio(tmp_path: Path) -> None:
    """Kafka: LogCleanerManager.maxCompactionDelay, which goes by the first batch of each dirty segment."""
    driven = log_of(tmp_path, max_compaction_lag_ms=5 * HOUR_MS)
    last = START_MS + 4 * HOUR_MS
    for checkpoint, now_ms, due in (
        (8, last + 5 * HOUR_MS, False),
        (8, last + 5 * HOUR_MS + 1, True),
        (6, last + 5 * HOUR_MS, True),
        (10, last + 50 * HOUR_MS, False),
    ):
        assert chosen(driven, checkpoint, now_ms).is_due(1.0) is due
    driven.log.config = attrs.evolve(driven.log.config, max_compaction_lag_ms=LogConfig().max_compaction_lag_ms)
    for segment in driven.log.segments:
        Path(segment.log.path).unlink()
    assert not chosen(driven, None).needs_compaction_now, "without a most lag no header is read"


@pytest.mark.parametrize(("policy", "segments"), [(("compact",), 2), (("delete",), 1)])
def test_the_active_segment_of_a_compacted_log_rolls_in_time(tmp_path: Path, policy: tuple[str, ...], segments: int) -> None:
    """Kafka: LogConfig.maxSegmentMs: what stays in the active segment could never be compacted in time."""
    config = LogConfig(cleanup_policy=policy, max_compaction_lag_ms=HOUR_MS, message_timestamp_after_max_ms=10 * HOUR_MS)
    driven = open_driven(tmp_path, config=config)
    for timestamp in (START_MS, START_MS + HOUR_MS, START_MS + HOUR_MS + 1):
        put(driven, 1, 1, timestamp=timestamp)
    assert len(driven.log.segments) == segments
    driven.run(driven.log.close())


MODULES: Final = ("storage.cleaner", "offline.scrub")
ORDER: Final = json.dumps({"max_bytes_per_second": 0}).encode() + b"\n"
SEGMENT: Final = json.dumps({"path": "/nowhere", "size": 1, "base_offset": 0, "end_offset": 1}).encode() + b"\n"


def run(module: str, sent: bytes, *, is_heard: bool = True) -> tuple[int, str]:
    """Exit status and standard error of a process to which a server has sent so much before it was gone."""
    command = [sys.executable, "-P", "-m", f"triolog.server.{module}", str(os.getpid()), "owner"]
    reading, writing = os.pipe()
    if not is_heard:
        os.close(reading)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    try:
        child = subprocess.run(
            command, input=sent, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60, env=variables
        )
    finally:
        os.close(writing)
        if is_heard:
            os.close(reading)
    return child.returncode, child.stderr.decode()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("sent", [b"", b'{"max_bytes'], ids=["nothing", "half a line"])
def test_a_process_whose_server_is_gone_before_it_said_what_to_do_ends_without_a_word(module: str, sent: bytes) -> None:
    assert run(module, sent) == (1, "")


def test_a_process_that_nobody_hears_ends_without_a_word_and_one_with_a_bug_says_where(tmp_path: Path) -> None:
    assert run("offline.scrub", ORDER + SEGMENT, is_heard=False) == (1, "")
    assert run("offline.scrub", ORDER + SEGMENT) == (0, "")
    status, said = run("offline.scrub", b"{}\n")
    assert status == 1
    assert "Traceback" in said
    assert "max_bytes_per_second" in said


def job_of(directory: Path, **settings: Any) -> CleaningJob:
    """A round over five segments of two records, each of which stays alone."""
    driven = open_driven(directory, config=LogConfig(cleanup_policy=("compact",), segment_bytes=200))
    for number in range(10):
        put(driven, number % 2, number)
    driven.roll()
    driven.flush()
    return plan_round(driven.log, drive(driven.fs, choose(driven.log, None, 0)), 0, map_bytes=1 << 14, **settings)


def lines_of(job: CleaningJob, answers: int) -> list[dict[str, Any]]:
    output = io.StringIO()
    source = io.StringIO(job.encode().decode() + "next\n" * answers)
    try:
        clean_for_server(OsFileSystem(), source, output, ParentWatch(os.getppid()))
    finally:
        lines = [json.loads(line) for line in output.getvalue().splitlines()]
    return lines


def test_a_line_for_each_group_and_one_for_the_result(tmp_path: Path) -> None:
    lines = lines_of(job_of(tmp_path), 100)
    assert [list(line) for line in lines] == [["group"]] * (len(lines) - 1) + [["result"]]
    assert [offset for line in lines[:-1] for offset in line["group"][0]] == [0, 2, 4, 6, 8]
    next_dirty_offset, bytes_read, _, keys, keyless = lines[-1]["result"]
    assert (next_dirty_offset, keys, keyless) == (10, 2, 0)
    assert bytes_read > 0


def test_it_goes_on_only_when_it_is_told_to(tmp_path: Path) -> None:
    with pytest.raises(ServerGoneError):
        lines_of(job_of(tmp_path), 1)
    assert {path.name[:20] for path in tmp_path.iterdir() if path.suffix == ".cleaned"} == {f"{base:020d}" for base in (0, 2)}


@pytest.mark.parametrize(
    ("name", "damage", "kind", "error"),
    [
        ("00000000000000000004.log", lambda path: flip(path, -1, 0), "damage", "CRC"),
        ("00000000000000000004.log", Path.unlink, "gone", "00000000000000000004.log"),
        ("00000000000000000000.log.cleaned", Path.mkdir, "disk", ""),
    ],
)
def test_the_end_of_a_round_is_told(tmp_path: Path, name: str, damage: Callable[[Path], None], kind: str, error: str) -> None:
    job = job_of(tmp_path)
    damage(tmp_path / name)
    [line] = lines_of(job, 1)
    assert line["kind"] == kind
    assert error in line["error"]
