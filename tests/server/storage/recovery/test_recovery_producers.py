"""Producers and transaction indexes of a log that is opened: from the newest snapshot and the batches behind it."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.errors import OutOfOrderSequenceError, RecordBatchTooLargeError
from triolog.protocol.records.batch import empty_batch_header, end_txn_marker
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import NO_OFFSET, AppendResult, TimestampType, TopicPartition
from triolog.server.config import LogConfig
from triolog.server.storage.disk.checkpoints import RECOVERY_POINT_FILE, decode_offsets
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.indexes.transaction_index import AbortedTxn
from triolog.server.storage.log.changes import reconfigure
from triolog.server.storage.log.prepare import prepare_append
from triolog.server.storage.producers import producer_snapshots
from triolog.server.storage.producers.producer_cursor import BatchMetadata, ProducerEntry
from triolog.server.storage.producers.producer_snapshots import decode_snapshot, encode_snapshot

from tests.support.crash_fs import CrashFileSystem
from tests.support.golden import GOLDEN
from tests.support.logs import DrivenLog, batch, open_driven

GOLDEN_LOGS: Final = [(state, topic) for state in ("clean", "unclean") for topic in ("txn", "idem", "compacted")]
PRODUCER: Final = 7


def opened(tmp_path: Path, state: str, topic: str, *, was_clean: bool, recovery_point: int = 0) -> DrivenLog:
    partition = TopicPartition(topic, 0)
    shutil.copytree(GOLDEN / state / str(partition), tmp_path / str(partition), copy_function=shutil.copyfile)
    (tmp_path / str(partition)).chmod(0o755)
    return open_driven(tmp_path / str(partition), topic_partition=partition, was_clean=was_clean, recovery_point=recovery_point)


def newest_batches(driven: DrivenLog) -> dict[int, ProducerEntry]:
    """The entries as a snapshot keeps them: of each producer its newest batch."""
    path = "state"
    return {entry.producer_id: entry for entry in decode_snapshot(path, encode_snapshot(driven.log.producers.entries.values()))}


def aborted(driven: DrivenLog) -> list[list[AbortedTxn]]:
    return [drive(driven.fs, segment.view().aborted_transactions()) for segment in driven.log.segments]


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize(("state", "topic"), GOLDEN_LOGS)
def test_producers_are_what_kafkas_snapshot_says(tmp_path: Path, state: str, topic: str, was_clean: bool) -> None:
    """And without a snapshot the log says the same."""
    driven = opened(tmp_path, state, topic, was_clean=was_clean)
    newest = max((GOLDEN / "clean" / f"{topic}-0").glob("*.snapshot"))
    expected = {entry.producer_id: entry for entry in decode_snapshot(str(newest), newest.read_bytes())}
    assert driven.log.producers.end_offset == driven.log.log_end_offset == int(newest.stem)
    assert newest_batches(driven) == expected
    if state == "unclean":
        point = decode_offsets("", (GOLDEN / "unclean" / RECOVERY_POINT_FILE).read_bytes())[TopicPartition(topic, 0)]
        for recovery_point in (point, 0):
            for path in Path(driven.log.directory).glob("*.snapshot"):
                path.unlink()
            assert newest_batches(driven.reopen(was_clean=False, recovery_point=recovery_point)) == expected


@pytest.mark.parametrize("state", ["clean", "unclean"])
def test_transaction_indexes_are_rebuilt_as_kafka_wrote_them(tmp_path: Path, state: str) -> None:
    """Kafka: LogLoaderTest.testFullTransactionIndexRecovery. First those that no index tells of, then after a clean stop."""
    expected = {path.name: path.read_bytes() for path in (GOLDEN / "clean" / "txn-0").glob("*.txnindex")}
    assert any(expected.values())
    driven = opened(tmp_path, state, "txn", was_clean=False)
    directory, before = Path(driven.log.directory), aborted(driven)
    for was_clean in (False, True):
        for suffix in ("txnindex", "index", *(() if was_clean else ("snapshot",))):
            for path in directory.glob(f"*.{suffix}"):
                path.unlink()
        driven = driven.reopen(was_clean=was_clean)
        assert {path.name: path.read_bytes() for path in directory.glob("*.txnindex")} == expected
        assert aborted(driven) == before
        driven.close()


def one_record(producer_id: int, offset: int, sequence: int, **options: bool) -> bytes:
    """A batch of one record, as it lies in a log."""
    return build_batch(
        [(1_000, None, b"value", ())],
        base_offset=offset,
        partition_leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        **options,
    )


def idempotent(offset: int, sequence: int, *, transactional: bool = False) -> bytes:
    return one_record(PRODUCER, offset, sequence, is_transactional=transactional)


def segment_of(directory: Path, base_offset: int, *batches: bytes) -> None:
    (directory / f"{base_offset:020}.log").write_bytes(b"".join(batches))


def put_snapshot(directory: Path, offset: int, *entries: ProducerEntry) -> Path:
    path = directory / f"{offset:020}.snapshot"
    path.write_bytes(encode_snapshot(entries))
    return path


def entry(last_sequence: int, last_offset: int) -> ProducerEntry:
    return ProducerEntry(PRODUCER, 0, -1, 1_000, None, (BatchMetadata(last_sequence, last_offset, 0, 1_000),))


def snapshot_offsets(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.snapshot"))


def three_segments(directory: Path) -> None:
    """One batch each, at 0, 1 and 2."""
    for offset in range(3):
        segment_of(directory, offset, idempotent(offset, offset))


def last_sequence(driven: DrivenLog) -> int:
    return driven.log.producers.entries[PRODUCER].last_sequence


def test_the_largest_stray_snapshot_is_kept_when_it_is_not_below_the_last_segment(tmp_path: Path) -> None:
    """Kafka: LogLoaderTest.testLoadingLogKeepsLargestStrayProducerStateSnapshot: 1, 2 and the stray 3 and 4, of which the
    log reaches 4."""
    for offset in range(3):
        segment_of(tmp_path, offset, *(idempotent(each, each) for each in range(offset, 4 if offset == 2 else offset + 1)))
    for offset in (1, 2, 3, 4):
        put_snapshot(tmp_path, offset, entry(offset - 1, offset - 1))
    driven = open_driven(tmp_path)
    assert snapshot_offsets(tmp_path) == [1, 2, 4]
    assert last_sequence(driven) == 3


def test_a_clean_log_without_a_snapshot_knows_its_producers_and_writes_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka forgets them. Without one an open transaction would be shown as committed, and what is sent again stored again."""
    three_segments(tmp_path)
    with open(tmp_path / f"{2:020}.log", "ab") as file:
        file.write(one_record(PRODUCER + 1, 3, 0, is_transactional=True))
    open_driven(tmp_path, was_clean=False).close()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    driven = open_driven(tmp_path)
    assert f"{tmp_path} has no producer snapshot: reading the batch headers of all" in caplog.text
    assert (last_sequence(driven), driven.log.producers.end_offset, driven.log.last_stable_offset) == (2, 4, 3)
    assert snapshot_offsets(tmp_path) == [4]
    assert newest_batches(open_driven(tmp_path)) == newest_batches(driven)


def test_a_damaged_clean_log_without_a_snapshot_loses_its_producers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    segment_of(tmp_path, 0, *(idempotent(offset, offset) for offset in range(3)))
    open_driven(tmp_path, was_clean=False).close()
    (tmp_path / f"{3:020}.snapshot").unlink()
    log = tmp_path / f"{0:020}.log"
    # An index entry behind it, so that nobody looks there when the log is opened.
    (tmp_path / f"{0:020}.index").write_bytes(struct.pack(">ii", 2, 2 * (log.stat().st_size // 3)))
    data = bytearray(log.read_bytes())
    data[len(data) // 3 + 16] = 7
    log.write_bytes(data)
    driven = open_driven(tmp_path)
    assert "the producers of topic-0 and their open transactions are lost" in caplog.text
    assert (driven.log.producers.entries, driven.log.log_end_offset) == ({}, 3)


def test_the_snapshot_of_a_clean_start_is_on_the_device_before_the_log_is_served() -> None:
    fs = CrashFileSystem()
    driven = open_driven("/log", fs=fs)
    driven.append(idempotent(0, 0))
    driven.close()
    path = f"/log/{1:020}.snapshot"
    fs.unlink(path)
    fs.sync_directory("/log")
    open_driven("/log", fs=fs)
    assert decode_snapshot(path, fs.durable_content(path) or b"")[0].last_sequence == 0


def test_snapshots_from_behind_the_scan_are_written_anew_and_the_one_below_it_is_where_replay_begins(tmp_path: Path) -> None:
    """Kafka: LogLoaderTest.testCorruptedLogRecoveryDoesNotDeleteProducerStateSnapshotsPostRecovery. What they said may be lost
    with the batches that were damaged."""
    three_segments(tmp_path)
    for offset in (1, 2, 3):
        put_snapshot(tmp_path, offset, entry(99, offset - 1))
    driven = open_driven(tmp_path, was_clean=False)
    assert last_sequence(driven) == 2
    assert snapshot_offsets(tmp_path) == [1, 2, 3]
    found = decode_snapshot("", (tmp_path / f"{2:020}.snapshot").read_bytes())
    assert [each.last_sequence for each in found] == [1]
    driven.close()
    put_snapshot(tmp_path, 2, ProducerEntry(99, 3, -1, 1_000, None, ()))
    driven = open_driven(tmp_path, was_clean=False, recovery_point=2)
    assert set(driven.log.producers.entries) == {99, PRODUCER}
    assert last_sequence(driven) == 2


def test_damage_takes_the_sequences_of_its_batch_with_it(tmp_path: Path) -> None:
    batches = [idempotent(offset, offset) for offset in range(3)]
    batches[1] = batches[1][:-1] + b"!"
    segment_of(tmp_path, 0, *batches)
    driven = open_driven(tmp_path, was_clean=False)
    assert [batch.last_sequence for batch in driven.log.producers.entries[PRODUCER].batches] == [0, 2]


def test_a_log_that_went_on_empty_knows_no_producer(tmp_path: Path) -> None:
    three_segments(tmp_path)
    driven = open_driven(tmp_path, was_clean=False, log_start_offset=50, config=LogConfig())
    assert (driven.log.producers.entries, driven.log.log_end_offset) == ({}, 50)


def ended(producer_id: int, offset: int, *, commit: bool) -> bytes:
    return end_txn_marker(
        producer_id=producer_id, producer_epoch=0, commit=commit, timestamp=1_000, coordinator_epoch=0, base_offset=offset
    )


@pytest.mark.parametrize("is_open_before", [False, True])
def test_recovery_indexes_an_aborted_transaction_at_its_marker_and_knows_its_start(
    tmp_path: Path, is_open_before: bool
) -> None:
    """Kafka: LogSegmentTest.testRecoverTransactionIndex."""
    first, second = 1, 2
    before = [one_record(second, 75, 0, is_transactional=True)] if is_open_before else []
    segment_of(tmp_path, 75, *before)
    taken = len(before)
    segment_of(
        tmp_path,
        100,
        *(one_record(first, 100 + number, number, is_transactional=True) for number in range(2)),
        *(one_record(second, 102 + number, taken + number, is_transactional=True) for number in range(2)),
        *(one_record(-1, offset, -1) for offset in (104, 105)),
        ended(second, 106, commit=False),
        ended(first, 107, commit=True),
    )
    driven = open_driven(tmp_path, was_clean=False)
    assert driven.log.producers.end_offset == 108
    expected = [[], [AbortedTxn(second, 75 if is_open_before else 102, 106, 100)]]
    assert aborted(driven) == expected
    driven.close()
    assert aborted(driven.reopen(was_clean=False, recovery_point=100)) == expected


def test_a_batch_that_compaction_emptied_still_tells_the_last_sequence(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testRebuildProducerStateWithEmptyCompactedBatch."""
    empty = empty_batch_header(
        base_offset=23,
        last_offset=24,
        max_timestamp=1_000,
        timestamp_type=TimestampType.CREATE_TIME,
        partition_leader_epoch=0,
        producer_id=PRODUCER,
        producer_epoch=15,
        base_sequence=0,
        is_transactional=False,
        is_control=False,
    )
    segment_of(tmp_path, 0, bytes(empty))
    driven = open_driven(tmp_path, was_clean=False)
    assert (last_sequence(driven), driven.log.log_end_offset, driven.offsets()) == (1, 25, [])


def sequenced(producer_id: int, sequence: int, count: int = 1) -> bytes:
    return batch(*[1] * count, value=bytes(30), producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("was_clean", [True, False])
def test_an_append_of_several_batches_is_known_again_by_its_last_one_after_a_restart(
    tmp_path: Path, was_clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer was lost; of its producer the snapshot tells the newest batch alone, as where compaction left that one."""

    driven = open_driven(tmp_path, config=LogConfig().overlay({"segment.bytes": "600"}))
    driven.append(sequenced(8, 0))
    several = sequenced(PRODUCER, 0, 2) + sequenced(PRODUCER, 2) + sequenced(PRODUCER, 3)
    first = driven.append(several)
    driven.roll()
    driven.append(sequenced(8, 1))
    driven.flush()
    recovery_point = driven.log.recovery_point
    if was_clean:
        driven.close()
    else:
        driven.close_files()
    forget_earlier_batches(tmp_path, monkeypatch)
    driven = driven.reopen(was_clean=was_clean, recovery_point=recovery_point)
    assert len(driven.log.producers.entries[PRODUCER].batches) == 1
    assert driven.append(several) == first._replace(log_append_time=1)  # of a duplicate: its largest timestamp
    with pytest.raises(OutOfOrderSequenceError):
        driven.append(sequenced(PRODUCER, 1) + sequenced(PRODUCER, 3))
    driven.append(sequenced(PRODUCER, 4))
    assert driven.offsets() == list(range(7))


def forget_earlier_batches(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let snapshots alone say what producers did."""
    monkeypatch.setattr(producer_snapshots, "TAIL_BYTES", 0)
    for path in directory.glob("*.batches"):
        path.unlink()


def three_batches(producer_id: int = PRODUCER) -> list[bytes]:
    """Sequences 0 and 1, 2, and 3 to 5."""
    return [sequenced(producer_id, sequence, count) for sequence, count in ((0, 2), (2, 1), (3, 3))]


def cut_in(tmp_path: Path, batches: list[bytes], whole: int) -> DrivenLog:
    """The log of a server that was killed while it wrote these batches: so many are whole, the next one is half there."""
    driven = open_driven(tmp_path)
    driven.append(build_batch([(1, None, b"before", ())]))
    size = driven.log.active.size
    driven.append(b"".join(batches))
    driven.close_files()
    kept = size + sum(map(len, batches[:whole])) + len(batches[whole]) // 2
    with open(driven.log.active.log.path, "r+b") as file:
        file.truncate(kept)
    return driven.reopen(was_clean=False)


@pytest.mark.parametrize("comes_between", [False, True])
@pytest.mark.parametrize("whole", [0, 1, 2])
def test_the_rest_of_an_append_cut_by_a_kill_is_stored_when_it_is_resent(
    tmp_path: Path, whole: int, comes_between: bool
) -> None:
    """One that lies in two places then has no base offset."""
    batches = three_batches()
    driven = cut_in(tmp_path, batches, whole)
    if comes_between:
        driven.append(build_batch([(1, None, b"between", ())]))
    answer = driven.append(b"".join(batches))
    first = 2 if not whole else NO_OFFSET
    assert (answer.base_offset, answer.last_offset) == ((first, 7) if comes_between else (1, 6))
    if not comes_between:
        assert driven.append(b"".join(batches)).base_offset == 1, "now all of it is known again"
        with pytest.raises(OutOfOrderSequenceError):
            driven.append(batches[0] + batches[2])
    assert driven.offsets() == list(range(8 if comes_between else 7))
    assert last_sequence(driven) == 5


@pytest.mark.parametrize("lost", [0, 1])
def test_an_append_out_of_which_a_power_cut_took_a_batch_does_not_count_as_stored(tmp_path: Path, lost: int) -> None:
    """The device had what was behind it."""
    batches = three_batches()
    driven = open_driven(tmp_path)
    driven.append(build_batch([(1, None, b"before", ())]))
    position = driven.log.active.size + sum(map(len, batches[:lost]))
    driven.append(b"".join(batches))
    driven.close_files()
    with open(driven.log.active.log.path, "r+b") as file:
        file.seek(position)
        file.write(bytes(len(batches[lost])))
    driven = driven.reopen(was_clean=False)
    [gap] = driven.log.gaps
    with pytest.raises(OutOfOrderSequenceError, match=f"{gap} was lost to corruption"):
        driven.append(b"".join(batches))
    assert driven.append(batches[2]).base_offset == 4, "by itself it is there"


def test_a_rest_that_is_larger_than_a_segment_may_be_by_now_is_refused(tmp_path: Path) -> None:
    batches = three_batches()
    driven = cut_in(tmp_path, batches, 1)
    smaller = LogConfig().overlay({"segment.bytes": str(len(batches[1]) + len(batches[2]) - 1)})
    driven.run(reconfigure(driven.log, config=smaller))
    with pytest.raises(RecordBatchTooLargeError):
        driven.append(b"".join(batches))
    answer = driven.append(batches[0] + batches[1])
    assert (answer.base_offset, answer.last_offset) == (1, 3)


def test_a_rest_is_stored_with_only_the_newest_batch_known_and_after_a_roll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = three_batches()
    driven = cut_in(tmp_path, batches, 2)
    driven.roll()
    driven.flush()
    driven.close()
    forget_earlier_batches(tmp_path, monkeypatch)
    driven = driven.reopen(was_clean=True, recovery_point=driven.log.recovery_point)
    assert len(driven.log.producers.entries[PRODUCER].batches) == 1
    others = [prepare_append(data, driven.log.topic_partition, driven.log.config, now_ms=1) for data in three_batches(8)]
    first, *_, last = driven.append_group([driven.prepare(b"".join(batches)), *others])
    assert isinstance(first, AppendResult)
    assert isinstance(last, AppendResult)
    assert (first.base_offset, first.last_offset, last.last_offset) == (1, 6, 12)
