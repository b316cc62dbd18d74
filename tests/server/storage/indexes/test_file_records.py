"""Slices of a file of record batches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import CorruptRecordError
from triolog.protocol.limits import INT32_MAX, KIB, MIB
from triolog.protocol.records.batch import BatchHeader
from triolog.server.config import LogConfig
from triolog.server.storage.disk.diskops import DiskOp, FileHandle, Procedure, Read, Truncate, Write, drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CorruptIndexError, SnapshotExpiredError, StorageError
from triolog.server.storage.indexes.file_records import FIRST_READ_BYTES, LARGEST_READ_BYTES, FileSlice, whole_file
from triolog.server.storage.indexes.transaction_index import (
    ENTRY_BYTES,
    AbortedTxn,
    TransactionIndex,
    collect_aborted,
    decode_entries,
    encode_entry,
)
from triolog.server.storage.log.changes import truncate_to

from tests.support.counts import counts
from tests.support.logs import DrivenLog, batch, open_driven
from tests.support.record_batches import patched

T = TypeVar("T")
FS: Final = OsFileSystem()


def write_file(path: Path, *batches: bytes) -> FileSlice:
    data = b"".join(batches)
    path.write_bytes(data)
    return whole_file(FileHandle(path=str(path)), len(data))


def at(base_offset: int, *timestamps: int, **options: Any) -> bytes:
    return batch(*timestamps, base_offset=base_offset, **options)


def observed(procedure: Procedure[T], seen: list[DiskOp]) -> Procedure[T]:
    """The same procedure; its operations are noted in `seen`."""
    answer: Any = None
    while True:
        try:
            operation = procedure.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        seen.append(operation)
        answer = yield operation


def headers_of(area: FileSlice) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    drive(FS, area.visit_headers(lambda header, position: found.append((header.base_offset, position))))
    return found


def batches_of(area: FileSlice) -> list[bytes]:
    found: list[bytes] = []

    def visit(header: BatchHeader, position: int, data: memoryview) -> bool:
        found.append(bytes(data))
        return True

    drive(FS, area.visit_batches(visit))
    return found


def test_a_file_larger_than_32_bit_positions_is_refused() -> None:
    """Kafka: FileRecordsTest.testOpenOversizeFile."""
    with pytest.raises(StorageError, match=f"has {INT32_MAX + 5} bytes"):
        whole_file(FileHandle(path="some.log"), INT32_MAX + 5)
    assert whole_file(FileHandle(path="some.log"), INT32_MAX).end == INT32_MAX


def test_a_slice_of_exactly_one_batch_holds_it_and_one_byte_less_none(tmp_path: Path) -> None:
    """Kafka: FileRecordsTest.testIteratorWithLimits."""
    first, second, third = at(0), at(1, value=b"longer"), at(2)
    area = write_file(tmp_path / "log", first, second, third)
    start, end = len(first), len(first) + len(second)
    assert batches_of(FileSlice(area.file, start, end)) == [second]
    assert batches_of(FileSlice(area.file, start, end - 1)) == []
    assert headers_of(FileSlice(area.file, start, end - 1)) == []


def test_reading_leaves_the_place_of_the_next_append_alone(driven: DrivenLog) -> None:
    """Kafka: FileRecordsTest.testIterationDoesntChangePosition."""
    driven.append(batch())
    size = driven.log.active.size
    assert driven.offsets() == [0]
    driven.append(batch(value=b"second"))
    assert driven.log.active.size > size
    assert [record.value for record in driven.records()] == [b"value", b"second"]


@given(st.lists(st.integers(0, 3000), max_size=30), st.integers(0, 61), st.data())
def test_every_walk_shows_the_same_whole_batches(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], tail: int, data: st.DataObject
) -> None:
    batches = [at(offset, value=bytes(size)) for offset, size in enumerate(sizes)]
    torn = at(len(sizes), value=bytes(100))[:tail]
    area = write_file(tmp_path_factory.mktemp("walk") / "log", *batches, torn)
    positions = [sum(map(len, batches[:slot])) for slot in range(len(batches))]
    assert headers_of(area) == list(enumerate(positions))
    assert batches_of(area) == batches
    wanted = data.draw(st.integers(0, len(sizes)))
    found = drive(FS, area.find_batch(lambda header: header.last_offset >= wanted))
    if wanted == len(sizes):
        assert found is None
    else:
        assert found is not None
        assert (found.header.base_offset, found.position) == (wanted, positions[wanted])
        assert drive(FS, area.read_batch(found)) == batches[wanted]


def test_the_walk_ends_where_the_visitor_says_so(tmp_path: Path) -> None:
    first, second = at(0), at(1)
    area = write_file(tmp_path / "log", first, second)
    assert drive(FS, area.visit_batches(lambda header, position, data: header.base_offset == 0)) == len(first)


def test_a_batch_above_one_mib_is_shown_whole(tmp_path: Path) -> None:
    large = at(1, value=bytes(3 * MIB))
    area = write_file(tmp_path / "log", at(0), large, at(2))
    assert batches_of(area) == [at(0), large, at(2)]
    found = drive(FS, area.find_batch(lambda header: header.base_offset == 1))
    assert found is not None
    assert found.data is None
    assert drive(FS, area.read_batch(found)) == large


def test_reads_start_with_8_kib_and_grow_to_1_mib(tmp_path: Path) -> None:
    seen: list[DiskOp] = []
    area = write_file(tmp_path / "log", *(at(offset, value=bytes(50 * KIB)) for offset in range(100)))
    assert drive(FS, observed(area.find_batch(lambda header: False), seen)) is None
    sizes = [operation.size for operation in seen if isinstance(operation, Read)]
    assert sizes[0] == FIRST_READ_BYTES == 8192
    assert max(sizes) == LARGEST_READ_BYTES
    assert sizes[1:8] == [FIRST_READ_BYTES << step for step in range(1, 8)]
    seen.clear()
    area = write_file(tmp_path / "log", *(at(offset) for offset in range(1000)))
    found = drive(FS, observed(area.find_batch(lambda header: header.base_offset == 50), seen))
    assert found is not None
    assert (found.data, seen) == (at(50), [Read(area.file, 0, FIRST_READ_BYTES)]), "one read, which has the batch"


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ({"magic": 1}, "magic 1, a legacy message format"),
        ({"magic": 0}, "magic 0, a legacy message format"),
        ({"magic": 3}, "magic 3 and batch length"),
        ({"batch_length": 48}, "batch length 48"),
        ({"batch_length": -1}, "batch length -1"),
    ],
)
def test_what_is_no_batch_names_file_and_position(tmp_path: Path, damage: dict[str, int], found: str) -> None:
    first = at(0)
    area = write_file(tmp_path / "some.log", first, patched(at(1), **damage), at(2))
    for walk in (headers_of, batches_of):
        with pytest.raises(CorruptRecordError, match=found) as caught:
            walk(area)
        assert f"some.log: no record batch at position {len(first)}" in str(caught.value)


def test_a_preallocated_file_has_its_length_at_once_and_is_cut_to_its_records(tmp_path: Path) -> None:
    """Kafka: FileRecordsTest.testPreallocateTrue, FileRecordsTest.testPreallocateClearShutdown,
    LogSegmentTest.testCreateWithInitFileSizeClearShutdown. By a roll, a close, and the start after an unclean stop."""

    def sizes(driven: DrivenLog) -> list[int]:
        return [Path(segment.log.path).stat().st_size for segment in driven.log.segments]

    driven, size = open_driven(tmp_path, config=LogConfig(preallocate=True, segment_bytes=MIB)), len(batch())
    assert (sizes(driven), driven.log.active.size, driven.records()) == ([MIB], 0, [])
    driven.append(batch())
    driven.roll()
    assert sizes(driven) == [size, MIB]
    driven.append(batch())
    driven.close()
    assert sizes(driven) == [size, size]
    driven = driven.reopen(was_clean=True)
    assert driven.log.active.size == size
    assert driven.append(batch()).base_offset == 2
    driven = driven.reopen(was_clean=False)
    assert (sizes(driven), driven.offsets()) == ([size, 2 * size], [0, 1, 2])


def test_a_truncation_to_the_present_end_truncates_no_file(driven: DrivenLog) -> None:
    """Kafka: FileRecordsTest.testTruncateNotCalledIfSizeIsSameAsTargetSize."""
    driven.append(batch())
    for offset in (1, 2):
        assert [operation for operation in truncate_to(driven.log, offset) if isinstance(operation, Truncate)] == []
    assert driven.offsets() == [0]


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
