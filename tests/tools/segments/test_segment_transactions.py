"""Damaged batches of transactions, and indexes that a broker did not finish: what a committed read makes of them."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE, encode_offsets
from triolog.server.storage.errors import LogDirectoryError
from triolog.server.storage.indexes.transaction_index import AbortedTxn, encode_entry
from triolog.tools.segments.segment_log import read_logs
from triolog.tools.segments.segment_transactions import last_stable_offset

from tests.support.record_batches import with_records
from tests.support.segment_files import WrittenLog
from tests.tools.segments.test_segment_reader import READ, TransactionLog, log_in, offsets_of, overwrite, splits_of

PARTITION: Final = TopicPartition("topic", 0)


def written_to(directory: Path, *segments: list[bytes]) -> WrittenLog:
    written = WrittenLog(directory)
    for batches in segments:
        written.append_segment(batches)
    return written


@pytest.mark.parametrize("at", [61, 66, 70])
def test_a_damaged_marker_leaves_its_transaction_open(tmp_path: Path, at: int, caplog: pytest.LogCaptureFixture) -> None:
    log = TransactionLog()
    log.add()
    log.add(1)
    log.end(1, commit=True)
    log.add()
    written = written_to(tmp_path / "topic-0", log.batches)
    overwrite(written, 2, b"\xff\xff", at=at)
    with caplog.at_level(logging.WARNING):
        found = log_in(written.directory)
        assert last_stable_offset(found) == 2
    assert "position 182: batch at offset 4 carries CRC" in caplog.text
    assert offsets_of(splits_of(found, committed=True)) == [0, 1]


def test_a_marker_that_is_no_record_leaves_its_transaction_open(tmp_path: Path) -> None:
    log = TransactionLog()
    log.add(1)
    marker, _ = with_records(b"\x02\x00", count=1, base_offset=2, attributes=0x30, producer_id=1, producer_epoch=0)
    log.batches.append(marker)
    found = log_in(written_to(tmp_path / "topic-0", log.batches).directory)
    assert last_stable_offset(found) == 0


def test_a_damaged_batch_begins_no_transaction(tmp_path: Path) -> None:
    """It would stay open, and hide everything behind it."""
    log = TransactionLog()
    for _ in range(4):
        log.add()
    written = written_to(tmp_path / "topic-0", log.batches)
    overwrite(written, 1, b"\x10", at=22)
    overwrite(written, 1, bytes(8), at=43)
    assert offsets_of(splits_of(log_in(written.directory), committed=True)) == [0, 1, 4, 5, 6, 7]


def test_a_damaged_marker_does_not_decide_what_was_aborted(tmp_path: Path) -> None:
    """Type 0 is ABORT, 1 is COMMIT; the segment has no transaction index."""
    log = TransactionLog()
    log.add(1)
    log.end(1, commit=True)
    log.add(1)
    log.end(1, commit=True)
    written = written_to(tmp_path / "topic-0", log.batches[:1], log.batches[1:])
    position = log.batches[1].index(b"\x00\x00\x00\x01", 61) + 3
    overwrite(written, 1, b"\x00", at=position)
    assert offsets_of(splits_of(log_in(written.directory), committed=True), attrs.evolve(READ)) == [0, 1, 3, 4]


@pytest.mark.parametrize("points", [None, {}, {PARTITION: 2}])
def test_no_transaction_index_behind_the_recovery_point_counts(
    tmp_path: Path, points: dict[TopicPartition, int] | None
) -> None:
    """A partition that the checkpoint does not have was never synced as far as anybody knows."""
    log = TransactionLog()
    log.add(1)
    log.end(1, commit=False)
    log.add(2)
    log.end(2, commit=False)
    log.add()
    written = written_to(tmp_path / "topic-0", log.batches[:4], log.batches[4:])
    first = AbortedTxn(producer_id=1, first_offset=0, last_offset=2, last_stable_offset=3)
    for path, entries in zip(sorted(written.directory.glob("*.log")), (encode_entry(first), b""), strict=True):
        path.with_suffix(".txnindex").write_bytes(entries)
    if points is not None:
        (tmp_path / RECOVERY_POINT_FILE).write_bytes(encode_offsets(points))
    assert offsets_of(splits_of(log_in(tmp_path), committed=True)) == [6, 7]


def test_after_a_clean_stop_indexes_are_believed(tmp_path: Path) -> None:
    log = TransactionLog()
    log.add()
    written_to(tmp_path / "topic-0", log.batches)
    (tmp_path / CLEAN_SHUTDOWN_FILE).write_bytes(b"")
    assert log_in(tmp_path).trusted_offset == 2**63 - 1


def test_a_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    log = TransactionLog()
    log.add()
    (tmp_path / "one").mkdir()
    written_to(tmp_path / "one" / "topic-0", log.batches)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with pytest.raises(LogDirectoryError, match=r"topic-0 is in .*one/topic-0 and in .*two/topic-0"):
        read_logs([str(tmp_path / "one"), str(tmp_path / "two")])
