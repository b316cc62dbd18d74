"""Each field of each derived file altered before a start: records served and deleted are those that a scan of the log says."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final, NamedTuple

import pytest
from triolog.protocol.records.batch import parse_header
from triolog.protocol.types import Isolation, TopicPartition
from triolog.server.config import LogConfig
from triolog.server.storage.log.changes import raise_leader_epoch
from triolog.server.storage.log.retention import expire_segments

from tests.support import counts, crash_fs
from tests.support.altered_files import EPOCHS, FACTS, altered
from tests.support.compaction import end_transaction
from tests.support.crash_fs import CrashFileSystem
from tests.support.logs import START_MS, Clock, DrivenLog, batch, open_driven

DIRECTORY: Final = "/logs/topic-0"
PARTITION: Final = TopicPartition("topic", 0)
RETENTION_MS: Final = 1000
CONFIG: Final = LogConfig().overlay(
    {"index.interval.bytes": "100", "segment.index.bytes": "600", "retention.ms": str(RETENTION_MS), "segment.bytes": "100000"}
)
TIMES: Final = ((3, 1, 9, 2, 4, 5, 6, 0), (20, 21, 15, 22, 23, 40, 30, 31), (50, 51, 52, 41, 60, 55, 53, 54))
"""Of the records of each segment, after START_MS: the largest is not the last."""
KINDS: Final = (".index", ".timeindex", ".txnindex", ".snapshot", EPOCHS, FACTS)
TRANSACTION: Final = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
COMMITTED: Final = Isolation.READ_COMMITTED


class Stored(NamedTuple):
    """A log as it was left, and what a scan says of it."""

    fs: CrashFileSystem
    end_offset: int
    records: list[tuple[int, int]]
    """(offset, timestamp)."""
    committed: list[int]
    bases: list[int]
    epochs: Sequence[tuple[int, int]]


@functools.cache
def stored() -> Stored:
    """Three segments with timestamps in disorder, an aborted transaction in each, and a new leader epoch in the second."""
    fs = CrashFileSystem()
    driven = open_driven(DIRECTORY, fs=fs, config=CONFIG, topic_partition=PARTITION)
    for number, times in enumerate(TIMES):
        for slot, time in enumerate(times):
            driven.append(batch(START_MS + time, value=b"v" * 20))
            if number == 1 and slot == 4:
                driven.run(raise_leader_epoch(driven.log))
                driven.run(raise_leader_epoch(driven.log))
        driven.append(batch(START_MS + times[0], base_sequence=number, **TRANSACTION))
        end_transaction(driven, 7, commit=False)
        if number < 2:
            driven.roll()
    records = [(record.offset, record.timestamp) for record in driven.records()]
    committed = [record.offset for record in driven.records(COMMITTED)]
    bases = [segment.base_offset for segment in driven.log.segments]
    driven.close()
    fs.end_process()
    return Stored(fs, driven.log.log_end_offset, records, committed, bases, driven.log.leader_epochs.entries)


def opened(fs: CrashFileSystem, *, was_clean: bool) -> DrivenLog:
    point = stored().end_offset if was_clean else stored().bases[-1]
    return open_driven(
        DIRECTORY,
        fs=fs,
        clock=Clock(START_MS),
        config=CONFIG,
        topic_partition=PARTITION,
        was_clean=was_clean,
        recovery_point=point,
    )


def check_served(driven: DrivenLog, case: str) -> None:
    """All records, and each lookup by time and by offset."""
    whole = stored()
    assert [(record.offset, record.timestamp) for record in driven.records()] == whole.records, case
    assert [record.offset for record in driven.records(COMMITTED)] == whole.committed, case
    every = scanned(driven)
    for time in sorted({each + more for _, each in every for more in (0, 1)}):
        expected = next((found for found in every if found[1] >= time), (-1, -1))
        assert driven.offset_for(time)[1::-1] == expected, f"{case}: {time - START_MS}"
    largest = max(time for _, time in every)
    assert driven.offset_for(-3)[1::-1] == next(found for found in every if found[1] == largest), case


def scanned(driven: DrivenLog) -> list[tuple[int, int]]:
    """(offset, timestamp) of each batch that the logs hold, markers as well: each has one record."""
    found = []
    for segment in driven.log.segments:
        data, at = driven.fs.content(segment.log.path), 0  # type: ignore[attr-defined]
        while at < len(data):
            header = parse_header(data, at)
            found.append((header.base_offset, header.max_timestamp))
            at += header.size_bytes
    return found


def check_deleted(fs: CrashFileSystem, case: str, *, was_clean: bool) -> None:
    """Retention takes the segments whose records are all too old, and no other."""
    whole = stored()
    for now_ms in (START_MS + RETENTION_MS + each for each in (9, 10, 40, 41)):
        driven = opened(fs.copy(), was_clean=was_clean)
        every = scanned(driven)
        driven.run(expire_segments(driven.log, now_ms))
        young = [offset for offset, time in every if now_ms - time <= RETENTION_MS]
        expected = max(base for base in whole.bases if base <= young[0])
        assert driven.log.log_start_offset == expected, f"{case}: at {now_ms - START_MS}"


def check_appends(driven: DrivenLog, case: str) -> None:
    """Appends go on behind the end, in an epoch that does not descend."""
    whole = stored()
    for number in range(6):
        answer = driven.append(batch(START_MS + 100 + number, value=b"w" * 40))
        assert answer.base_offset == whole.end_offset + number, case
    epochs = [parse_header(bytes(driven.read(offset).records)).partition_leader_epoch for offset, _ in whole.records]
    assert epochs == sorted(epochs), case
    latest = driven.log.leader_epoch
    assert latest >= epochs[-1], case
    data = bytes(driven.read(whole.end_offset).records)
    assert parse_header(data).partition_leader_epoch == latest, case


def drawn(kind: str) -> list[tuple[str, str, bytes | None]]:
    """Alterations of the files of a kind: path, what was done, new content."""
    fs = stored().fs
    every = [
        (path, what, content)
        for path in fs.tree()
        if path.endswith(kind) and fs.content(path)
        for what, content in altered(path.rpartition("/")[2], fs.content(path))
    ]
    if counts.tier() == counts.LONG:
        return every
    return counts.draws(len(kind)).sample(every, min(len(every), counts.by_tier(commit=12, merge=60, long=0)))


def with_file(path: str, content: bytes | None) -> CrashFileSystem:
    fs = stored().fs.copy()
    if content is None:
        fs.unlink(path)
    else:
        crash_fs.put(fs, path, content)
    return fs


@pytest.mark.parametrize("was_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("kind", KINDS)
def test_altered_files_change_nothing_that_is_served_deleted_or_appended(kind: str, was_clean: bool) -> None:
    whole = stored()
    for path, what, content in drawn(kind):
        case = f"{path}: {what}"
        fs = with_file(path, content)
        check_deleted(fs, case, was_clean=was_clean)
        driven = opened(fs, was_clean=was_clean)
        check_served(driven, case)
        check_appends(driven, case)
        assert driven.offset_for(START_MS + 103).offset == whole.end_offset + 3, case
        driven.close()
        again = driven.reopen(was_clean=True, recovery_point=driven.log.log_end_offset)
        offsets = [offset for offset, _ in whole.records] + list(range(whole.end_offset, whole.end_offset + 6))
        assert again.offsets() == offsets, case


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
def test_without_checksums_too_altered_files_change_nothing_that_is_deleted_or_appended(kind: str) -> None:
    """As where Kafka wrote the files. A lookup by time may go astray then."""
    for path, what, content in drawn(kind):
        case = f"{path}: {what}"
        fs = with_file(path, content)
        fs.unlink(f"{DIRECTORY}/{FACTS}")
        check_deleted(fs, case, was_clean=True)
        driven = opened(fs, was_clean=True)
        assert [(record.offset, record.timestamp) for record in driven.records()] == stored().records, case
        check_appends(driven, case)
        driven.append(batch(base_sequence=3, **TRANSACTION))
        end_transaction(driven, 7, commit=False)
        driven.close()
