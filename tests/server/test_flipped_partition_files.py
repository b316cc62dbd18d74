"""Each bit and byte of the small files of a partition flipped, and each of them cut at each of its bytes: the log opens with
everything that it has, after a clean stop and after a kill. All of them are derived, and what contradicts the log is made anew.

Lookups by time through a damaged index are in `storage/recovery/test_altered_files.py`.
"""

from __future__ import annotations

import uuid
from typing import Final

import attrs
import pytest
from triolog.protocol.types import Isolation, TopicPartition
from triolog.server.config import LogConfig
from triolog.server.storage.disk.checkpoints import PARTITION_METADATA_FILE, encode_partition_metadata
from triolog.server.storage.log.prepare import prepare_marker
from triolog.server.storage.log.retention import increment_log_start_offset

from tests.support import counts, crash_fs, flipped_files
from tests.support.logs import START_MS, DrivenLog, batch, open_driven

DIRECTORY: Final = "/logs/topic-0"
PARTITION: Final = TopicPartition("topic", 0)
CONFIG: Final = LogConfig().overlay({"index.interval.bytes": "100", "segment.index.bytes": "240"})
TRIMMED_TO: Final = 1
KILLED_RECOVERY_POINT: Final = 7
COMMIT_CASES: Final = 10
MERGE_CASES: Final = 30
KILLED_STEP: Final = 7
SUFFIXES: Final = (".index", ".timeindex", ".txnindex", ".snapshot", ".batches")
NAMES: Final = ("derived.json", "leader-epoch-checkpoint", PARTITION_METADATA_FILE)
MAY_CHANGE_EPOCHS: Final = "leader-epoch-checkpoint"


@attrs.frozen
class Seen:
    """What a log answers."""

    log_start_offset: int
    log_end_offset: int
    gaps: object
    records: list[tuple[int, bytes | None, bytes | None, int]]
    committed: list[int]
    producers: list[tuple[object, ...]]
    """Without times: Kafka's snapshot has one for a producer, and that may be of a marker."""
    epochs: object


def seen(driven: DrivenLog) -> Seen:
    log = driven.log
    return Seen(
        log.log_start_offset,
        log.log_end_offset,
        log.gaps,
        [(record.offset, record.key, record.value, record.timestamp) for record in driven.records()],
        [record.offset for record in driven.records(Isolation.READ_COMMITTED)],
        [
            (each.producer_id, each.epoch, each.current_txn_first_offset, [batch[:3] for batch in each.batches])
            for each in sorted(log.producers.entries.values())
        ],
        log.leader_epochs.entries,
    )


@pytest.fixture(scope="module")
def stopped() -> tuple[crash_fs.CrashFileSystem, int]:
    """Three segments with aborted transactions, an idempotent producer and a trimmed start; and their end."""
    fs = crash_fs.CrashFileSystem()
    driven = open_driven(DIRECTORY, fs=fs, config=CONFIG, topic_partition=PARTITION)
    for number in range(3):
        driven.append(batch(START_MS + number, value=b"plain", key=b"key"))
        driven.append(batch(*[START_MS + number] * 2, producer_id=3, producer_epoch=0, base_sequence=2 * number))
        aborted = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
        driven.append(batch(START_MS + 9, value=b"aborted", base_sequence=number, **aborted))
        end = prepare_marker(producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, now_ms=START_MS)
        driven.append_group([end])
        if number < 2:
            driven.roll()
    driven.run(increment_log_start_offset(driven.log, TRIMMED_TO))
    crash_fs.put(fs, f"{DIRECTORY}/{PARTITION_METADATA_FILE}", encode_partition_metadata(uuid.UUID(int=5000)))
    driven.close()
    fs.end_process()
    return fs, driven.log.log_end_offset


def open_once(fs: crash_fs.CrashFileSystem, clean_end: int | None) -> DrivenLog:
    """`clean_end`: what the checkpoint of a clean stop says, None after a kill."""
    return open_driven(
        DIRECTORY,
        fs=fs,
        config=CONFIG,
        topic_partition=PARTITION,
        was_clean=clean_end is not None,
        recovery_point=KILLED_RECOVERY_POINT if clean_end is None else clean_end,
        log_start_offset=TRIMMED_TO,
    )


@pytest.mark.parametrize("was_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("kind", [*SUFFIXES, *NAMES])
def test_a_log_with_a_damaged_small_file_opens_with_everything_it_has(
    stopped: tuple[crash_fs.CrashFileSystem, int], kind: str, was_clean: bool
) -> None:
    fs, end_offset = stopped
    clean_end = end_offset if was_clean else None
    whole = seen(open_once(fs.copy(), clean_end))
    paths = [path for path in fs.tree() if path.endswith(kind) and fs.content(path)]
    every = [(path, *damage) for path in paths for damage in flipped_files.damages(fs.content(path))]
    assert every
    if counts.tier() != counts.LONG:
        every = counts.draws(len(kind)).sample(every, counts.by_tier(commit=COMMIT_CASES, merge=MERGE_CASES, long=0))
    elif not was_clean:
        every = every[::KILLED_STEP]  # all of these files are made anew then
    logs = crash_fs.logs_of(fs)
    for path, damage, damaged in every:
        case = f"{path} {damage}: {damaged!r}"
        copy = flipped_files.with_file(fs, path, damaged)
        found = seen(open_once(copy, clean_end))
        if path.endswith(MAY_CHANGE_EPOCHS):
            found = attrs.evolve(found, epochs=whole.epochs)
        assert found == whole, case
        assert crash_fs.logs_of(copy) == logs, case
