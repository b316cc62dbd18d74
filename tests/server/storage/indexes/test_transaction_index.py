from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.storage.disk.diskops import Procedure, Write, drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CorruptIndexError, SnapshotExpiredError
from triolog.server.storage.indexes.transaction_index import (
    ENTRY_BYTES,
    AbortedTxn,
    TransactionIndex,
    collect_aborted,
    decode_entries,
    encode_entry,
)

from tests.support.counts import counts

FS = OsFileSystem()
FOUR = [AbortedTxn(0, 0, 10, 11), AbortedTxn(1, 5, 15, 13), AbortedTxn(2, 18, 35, 25), AbortedTxn(3, 32, 50, 40)]


def append(index: TransactionIndex, txn: AbortedTxn) -> Procedure[None]:
    index.check_next(index.last_offset, txn)
    yield Write(index.file, index.size_in_bytes, [encode_entry(txn)])
    index.take(index.entries + 1, txn.last_offset)


def opened(path: Path, base_offset: int = 0, appended: Sequence[AbortedTxn] = ()) -> TransactionIndex:
    index = TransactionIndex(f"{path}/{base_offset:020d}.txnindex", base_offset)
    drive(FS, index.load())
    for txn in appended:
        drive(FS, append(index, txn))
    return index


def entries(index: TransactionIndex) -> list[AbortedTxn]:
    return drive(FS, index.read_entries(index.entries))


def test_an_entry_has_34_bytes_in_this_order() -> None:
    data = encode_entry(AbortedTxn(1, 2, 3, 4))
    assert data == b"\0\0" + b"".join(value.to_bytes(8, "big") for value in (1, 2, 3, 4))
    assert len(data) == ENTRY_BYTES


@given(st.lists(st.tuples(*[st.integers(0, 2**63 - 1)] * 4)))
def test_entries_come_back(values: list[tuple[int, int, int, int]]) -> None:
    txns = [AbortedTxn(*value) for value in values]
    assert decode_entries("f", b"".join(map(encode_entry, txns)) + b"partial") == txns


def test_a_version_above_255_is_refused_because_kafka_reads_one_byte_of_it() -> None:
    with pytest.raises(CorruptIndexError, match=r"f: entry 1 has version 256"):
        decode_entries("f", encode_entry(FOUR[0]) + b"\x01" + encode_entry(FOUR[1])[1:])


def test_reopened_it_appends_behind_its_last_entry(tmp_path: Path) -> None:
    """Kafka: TransactionIndexTest.testPositionSetCorrectlyWhenOpened, testFlush, testRenameIndex."""
    index = opened(tmp_path)
    assert list(tmp_path.iterdir()) == [], "the file comes with the first entry"
    for txn in FOUR:
        drive(FS, append(index, txn))
    again = opened(tmp_path)
    fifth, sixth = AbortedTxn(3, 50, 60, 55), AbortedTxn(3, 61, 70, 65)
    drive(FS, append(again, fifth))
    Path(again.path).rename(again.path + ".deleted")
    again.file.path += ".deleted"
    drive(FS, append(again, sixth))
    assert entries(again) == [*FOUR, fifth, sixth]


@pytest.mark.parametrize("last_offset", [15, 10])
def test_last_offsets_increase_strictly(tmp_path: Path, last_offset: int) -> None:
    """Kafka: TransactionIndexTest.testLastOffsetMustIncrease, testLastOffsetCannotDecrease."""
    index = opened(tmp_path)
    drive(FS, append(index, AbortedTxn(1, 5, 15, 13)))
    with pytest.raises(ValueError, match=f"the marker at offset {last_offset} does not lie behind the last entry's at 15"):
        drive(FS, append(index, AbortedTxn(0, 0, last_offset, 11)))


@pytest.mark.parametrize(
    ("start", "stop", "count", "complete"),
    [(0, 100, 4, False), (0, 32, 3, True), (0, 35, 4, True), (10, 35, 4, True), (11, 35, 3, True), (20, 41, 2, False)],
)
def test_aborted_transactions_of_a_range(start: int, stop: int, count: int, complete: bool) -> None:
    """Kafka: TransactionIndexTest.testCollectAbortedTransactions."""
    found: list[AbortedTxn] = []
    assert collect_aborted(FOUR, start, stop, found) is complete
    assert found == FOUR[{(11, 35): 1, (20, 41): 2}.get((start, stop), 0) :][:count]


@pytest.mark.parametrize(("offset", "left"), [(0, 0), (15, 1), (16, 2), (51, 4)])
def test_truncation_drops_the_entries_of_markers_at_or_behind_the_offset(tmp_path: Path, offset: int, left: int) -> None:
    index = opened(tmp_path, appended=FOUR)
    drive(FS, index.truncate_to(offset))
    assert entries(index) == entries(opened(tmp_path)) == FOUR[:left]
    drive(FS, append(index, AbortedTxn(9, 50, 60, 61)))
    assert entries(opened(tmp_path)) == [*FOUR[:left], AbortedTxn(9, 50, 60, 61)]


@pytest.mark.parametrize("entries_before", [0, 2])
def test_what_a_failed_append_left_behind_the_entries_is_trimmed(tmp_path: Path, entries_before: int) -> None:
    index = opened(tmp_path, appended=FOUR[:entries_before])
    with Path(index.path).open("ab") as stream:
        stream.write(encode_entry(FOUR[3])[: 40 % ENTRY_BYTES])
    drive(FS, index.trim())
    assert entries(opened(tmp_path)) == FOUR[:entries_before]
    assert Path(index.path).exists() is bool(entries_before)


@pytest.mark.parametrize("size", [0, 10, ENTRY_BYTES, 4 * ENTRY_BYTES - 1])
def test_a_file_that_is_shorter_than_its_entries_is_no_file_of_fewer(tmp_path: Path, size: int) -> None:
    index = opened(tmp_path, appended=FOUR)
    os.truncate(index.path, size)
    with pytest.raises(SnapshotExpiredError, match=f"has {size} bytes where {4 * ENTRY_BYTES} were expected"):
        entries(index)


def test_a_marker_before_the_base_offset_or_out_of_order_is_a_corrupt_index(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000012.txnindex"
    for wrong in (FOUR[:1], [FOUR[2], FOUR[1]], [FOUR[1], FOUR[1]]):
        path.write_bytes(b"".join(map(encode_entry, wrong)))
        with pytest.raises(CorruptIndexError, match=str(path)):
            opened(tmp_path, 12)


@given(data=st.data())
def test_collecting_over_segments_finds_every_transaction_that_reaches_into_the_range(data: st.DataObject) -> None:
    """Against all transactions of a history in which producers open and abort them in any order."""
    open_since: dict[int, int] = {}
    txns: list[AbortedTxn] = []
    offset = 0
    for producer_id in data.draw(st.lists(st.integers(0, 3), max_size=counts(100) + 20)):
        if producer_id in open_since:
            first = open_since.pop(producer_id)
            txns.append(AbortedTxn(producer_id, first, offset, min(open_since.values(), default=offset + 1)))
        else:
            open_since[producer_id] = offset
        offset += 1
    start = data.draw(st.integers(0, offset))
    stop = data.draw(st.integers(start, offset + 1))
    cut = data.draw(st.integers(0, len(txns)))
    found: list[AbortedTxn] = []
    for segment in (txns[:cut], txns[cut:]):
        if collect_aborted(segment, start, stop, found):
            break
    assert set(found) == {txn for txn in txns if txn.last_offset >= start and txn.first_offset < stop}
