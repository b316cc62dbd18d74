"""Producers and transactions in a log: what appends answer, what committed reads see, what survives."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.errors import InvalidRecordError, OutOfOrderSequenceError
from triolog.protocol.types import LATEST_TIMESTAMP, MAX_TIMESTAMP, AppendResult, Isolation
from triolog.server.config import LogConfig
from triolog.server.storage.disk.diskops import SyncDirectory, SyncFile
from triolog.server.storage.log.append import commit_append, plan_append
from triolog.server.storage.log.changes import truncate_fully_and_start_at, truncate_to
from triolog.server.storage.log.prepare import PreparedAppend, prepare_marker
from triolog.server.storage.producers.producer_snapshots import list_snapshots

from tests.support.compaction import end_transaction
from tests.support.crash_fs import CrashFileSystem
from tests.support.logs import START_MS, DrivenLog, batch, open_driven, scan_for_timestamp

COMMITTED = Isolation.READ_COMMITTED


def send(driven: DrivenLog, pid: int, sequence: int, *timestamps: int, txn: bool = True, epoch: int = 0) -> AppendResult:
    return driven.append(transactional(pid, sequence, *timestamps, txn=txn, epoch=epoch))


def transactional(pid: int, sequence: int, *timestamps: int, txn: bool = True, epoch: int = 0) -> bytes:
    return batch(*timestamps, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, is_transactional=txn)


def marker(pid: int, *, committed: bool, epoch: int = 0) -> PreparedAppend:
    return prepare_marker(producer_id=pid, producer_epoch=epoch, commit=committed, coordinator_epoch=0, now_ms=START_MS)


def test_a_sequence_that_does_not_follow_is_refused_and_a_duplicate_is_answered_as_the_first(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testNonSequentialAppend. A duplicate does not roll, as it does in Kafka before it is looked for."""
    one = batch(producer_id=1, producer_epoch=0, base_sequence=0)
    driven = open_driven(tmp_path, config=LogConfig(segment_bytes=len(one) + len(batch())))
    assert driven.append_group([driven.prepare(one), driven.prepare(one), driven.prepare(batch()), driven.prepare(one)]) == [
        AppendResult(0, 0, -1, 0),
        AppendResult(0, 0, START_MS, 0),
        AppendResult(1, 1, -1, 0),
        AppendResult(0, 0, START_MS, 0),
    ]
    assert len(driven.log.segments) == 1
    with pytest.raises(OutOfOrderSequenceError, match="topic-0: producer 1, epoch 0, sent sequence 2 after 0"):
        send(driven, 1, 2, txn=False)
    assert driven.offsets() == [0, 1]


def test_an_append_of_several_batches_is_known_again_as_a_whole(driven: DrivenLog) -> None:
    options: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0}
    both = batch(base_sequence=0, **options) + batch(base_sequence=1, **options)
    assert driven.append(both) == AppendResult(0, 1, -1, 0)
    assert driven.append(both) == AppendResult(0, 1, START_MS, 0)
    with pytest.raises(OutOfOrderSequenceError, match="sent sequence 4 after 2 in one append"):
        driven.append(batch(base_sequence=2, **options) + batch(base_sequence=4, **options))
    # The first one is there: what an append looks like of which a kill has left the first batches.
    assert driven.append(batch(base_sequence=1, **options) + batch(base_sequence=2, **options)) == AppendResult(1, 2, -1, 0)
    with pytest.raises(OutOfOrderSequenceError, match="sent sequence 0 after 2"):
        driven.append(batch(base_sequence=0, **options) + batch(START_MS, START_MS, START_MS, base_sequence=1, **options))
    with pytest.raises(InvalidRecordError, match="batches of 2 producers"):
        driven.append(batch(base_sequence=3, **options) + batch())
    assert driven.log.log_end_offset == 3


def test_under_log_append_time_a_duplicate_gets_the_time_of_the_first(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, config=LogConfig().overlay({"message.timestamp.type": "LogAppendTime"}))
    first = send(driven, 1, 0, txn=False)
    driven.clock.advance(1000)
    assert send(driven, 1, 0, txn=False) == first
    assert first.log_append_time == START_MS


def test_lookups_by_time_of_committed_readers_end_at_the_last_stable_offset(driven: DrivenLog) -> None:
    driven.append(batch(START_MS, START_MS + 10))
    send(driven, 1, 0, START_MS + 20)
    driven.append(batch(START_MS + 30))
    for isolation, end_offset in ((COMMITTED, 2), (Isolation.READ_UNCOMMITTED, 4)):
        for timestamp in (START_MS + 10, START_MS + 15, MAX_TIMESTAMP):
            expected = scan_for_timestamp(driven.records(isolation), timestamp)
            assert driven.offset_for(timestamp, isolation)[:2] == expected
        assert driven.offset_for(LATEST_TIMESTAMP, isolation).offset == end_offset


@pytest.mark.parametrize("committed", [True, False])
def test_the_last_stable_offset_waits_for_the_high_watermark(driven: DrivenLog, committed: bool) -> None:
    """Kafka: UnifiedLogTest.testFirstUnstableOffsetWithTransactionalData, testFetchUpToLastStableOffset,
    testReadCommittedWithConcurrentHighWatermarkUpdates."""
    send(driven, 1, 0)
    driven.append(batch())
    plan = plan_append(driven.log, [marker(1, committed=committed)], sync=False)
    driven.execute(plan.operations)
    commit_append(driven.log, plan)
    assert (driven.log.high_watermark, driven.log.last_stable_offset) == (2, 0)
    assert driven.read(0, isolation=COMMITTED).records == b""
    driven.log.high_watermark_to_end()
    assert driven.log.last_stable_offset == 3


def test_the_first_unstable_offset_is_not_below_the_log_start_offset(driven: DrivenLog) -> None:
    """Kafka: UnifiedLogTest.testLastStableOffsetDoesNotExceedLogStartOffsetMidSegment."""
    for sequence in range(6):
        send(driven, 1, sequence)
    driven.log.log_start_offset = 5
    driven.log.changed()
    assert driven.log.last_stable_offset == 5
    driven.log.check_invariant()
    assert driven.read(5, isolation=COMMITTED).records == b""


def test_the_name_of_a_new_transaction_index_is_synced_before_the_recovery_point_passes(
    tmp_path: Path, driven: DrivenLog
) -> None:
    driven.flush()
    send(driven, 1, 0)
    driven.flush()
    assert not driven.log.names_unsynced
    plan = plan_append(driven.log, [marker(1, committed=False)], sync=True)
    driven.write(plan)
    assert driven.log.names_unsynced
    assert SyncDirectory(str(tmp_path)) in driven.log.plan_flush().operations


def test_a_transaction_index_is_on_the_device_when_its_segment_is_closed_below_the_recovery_point() -> None:
    """A synced append has put the recovery point at the end of the log, so no later flush comes by the closed segment."""
    fs = CrashFileSystem()
    driven = open_driven("/topic-0", fs=fs)
    driven.write(plan_append(driven.log, [driven.prepare(transactional(1, 0))], sync=True))
    driven.write(plan_append(driven.log, [marker(1, committed=False)], sync=True))
    assert driven.log.recovery_point == 2
    path = driven.log.active.transaction_index.path
    driven.roll()
    assert fs.durable_content(path) == fs.content(path) != b""
    driven.log.drop_maps()


def test_the_snapshot_of_a_roll_is_synced_before_the_recovery_point_passes_it(tmp_path: Path, driven: DrivenLog) -> None:
    """By a flush, or by the sync of the next append; once is enough."""
    send(driven, 1, 0, txn=False)
    driven.roll()
    wanted = {SyncFile(f"{tmp_path}/{1:020d}.snapshot"), SyncFile(f"{tmp_path}/{1:020d}.batches")}
    assert wanted <= set(driven.log.plan_flush().operations)
    plan = plan_append(driven.log, [driven.prepare(batch())], sync=True)
    assert wanted <= {operation for operation in plan.operations if isinstance(operation, SyncFile)}
    driven.write(plan)
    driven.append(batch())
    assert wanted.isdisjoint(driven.log.plan_flush().operations)


def test_truncation_leaves_the_snapshots_at_or_below_its_offset(tmp_path: Path, driven: DrivenLog) -> None:
    """Kafka: UnifiedLogTest.testProducerIdMapTruncateTo."""
    for sequence in range(3):
        send(driven, 1, sequence, txn=False)
        if sequence:
            driven.roll()
    assert driven.run(list_snapshots(str(tmp_path))) == [2, 3]
    for offset, left in ((2, [2]), (1, []), (0, [])):
        driven.run(truncate_to(driven.log, offset))
        assert driven.run(list_snapshots(str(tmp_path))) == left
        assert driven.log.producers.end_offset == offset
        last = driven.log.producers.entries[1].last_sequence if offset else None
        assert last == (offset - 1 if offset else None)


def test_truncation_deletes_the_snapshot_of_a_clean_stop_behind_its_offset(tmp_path: Path, driven: DrivenLog) -> None:
    """It has the name of no segment, so it does not go with one; the log can grow past its offset with other batches."""
    for sequence in range(3):
        send(driven, 1, sequence, txn=False)
    driven.close()
    assert driven.run(list_snapshots(str(tmp_path))) == [3]
    driven = driven.reopen(was_clean=True)
    driven.run(truncate_to(driven.log, 2))
    assert driven.run(list_snapshots(str(tmp_path))) == []


def test_truncating_fully_removes_every_snapshot(tmp_path: Path, driven: DrivenLog) -> None:
    """Kafka: ProducerStateManagerTest.testTruncateFullyAndStartAt,
    UnifiedLogTest.testTakeSnapshotOnRollAndDeleteSnapshotOnRecoveryPointCheckpoint: a flush deletes none here."""
    for sequence in range(3):
        send(driven, 1, sequence, txn=False)
        driven.roll()
    driven.flush()
    assert driven.run(list_snapshots(str(tmp_path))) == [1, 2, 3]
    driven.run(truncate_fully_and_start_at(driven.log, 0))
    assert driven.run(list_snapshots(str(tmp_path))) == []
    send(driven, 1, 0, txn=False)
    driven.roll()
    assert driven.run(list_snapshots(str(tmp_path))) == [1]


def test_a_cut_transaction_index_is_on_the_device_before_the_log_goes_on() -> None:
    """Entries that a power cut brought back would call the records aborted that are stored at their offsets next."""
    fs = CrashFileSystem()
    driven = open_driven("/log", fs=fs)
    send(driven, 1, 0)
    end_transaction(driven, 1, commit=False)
    driven.roll()
    driven.flush()
    path = f"/log/{0:020}.txnindex"
    assert len(fs.durable_content(path) or b"") == 34
    driven.run(truncate_to(driven.log, 1))
    assert not fs.durable_content(path)


def test_the_snapshot_of_a_clean_stop_may_have_the_name_of_a_truncated_segment(tmp_path: Path, driven: DrivenLog) -> None:
    send(driven, 1, 0)
    driven.append(batch())
    driven.roll()
    driven.append(batch())
    driven.run(truncate_to(driven.log, 1))
    driven.append(batch())
    assert (tmp_path / f"{2:020}.log.deleted").exists()
    driven.close()
    again = driven.reopen(was_clean=True)
    assert again.log.last_stable_offset == 0
    assert (tmp_path / f"{2:020}.snapshot").exists()


def test_every_operation_that_fails_leaves_producers_as_they_were() -> None:
    """A plan whose write fails is taken back: its producers, its transaction and its index entry with it."""
    fs = CrashFileSystem()
    driven = open_driven("/log", fs=fs)
    send(driven, 1, 0)
    before = (dict(driven.log.producers.entries), driven.log.last_stable_offset)
    fs.fail_next("write", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        end_transaction(driven, 1, commit=False)
    assert (driven.log.producers.entries, driven.log.last_stable_offset) == before
    end_transaction(driven, 1, commit=False)
    assert driven.log.active.transaction_index.entries == 1
