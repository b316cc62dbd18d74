"""Slices of a file of record batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import CorruptRecordError
from triolog.protocol.limits import INT32_MAX, KIB, MIB
from triolog.protocol.records.batch import BatchHeader
from triolog.server.config import LogConfig
from triolog.server.storage.disk.diskops import DiskOp, FileHandle, Procedure, Read, Truncate, drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import StorageError
from triolog.server.storage.indexes.file_records import FIRST_READ_BYTES, LARGEST_READ_BYTES, FileSlice, whole_file
from triolog.server.storage.log.changes import truncate_to

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
