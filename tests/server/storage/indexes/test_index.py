"""Both indexes: the search, the sparse file, what an existing file means, and what each of them takes as its next entry."""

from __future__ import annotations

import os
import random
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.errors import CorruptRecordError
from triolog.protocol.limits import INT32_MAX, KIB, MIB
from triolog.protocol.records.batch import BatchHeader
from triolog.protocol.types import Bytes
from triolog.server.config import LogConfig
from triolog.server.storage import errors
from triolog.server.storage.disk.diskops import DiskOp, FileHandle, Map, Procedure, Read, Truncate, Write, drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CorruptIndexError, SnapshotExpiredError
from triolog.server.storage.indexes import transaction_index
from triolog.server.storage.indexes.file_records import FIRST_READ_BYTES, LARGEST_READ_BYTES, FileSlice, whole_file
from triolog.server.storage.indexes.index import WARM_BYTES, AbstractIndex, OffsetIndex, TimeIndex
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

FS: Final = OsFileSystem()
BASE: Final = 1_000
PAGE_BYTES: Final = 4096
KINDS: Final = pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])


@pytest.fixture(params=[OffsetIndex, TimeIndex], ids=["offset", "time"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AbstractIndex]:
    index = request.param(f"{tmp_path}/index", BASE, 240)
    yield index
    index.buffer = None  # a map keeps a descriptor


class Touches:
    """A struct that notes where it reads."""

    def __init__(self, real: struct.Struct) -> None:
        self.real = real
        self.positions: list[int] = []

    def unpack_from(self, buffer: Bytes, position: int) -> tuple[int, ...]:
        self.positions.append(position)
        return self.real.unpack_from(buffer, position)


def encoded(index: AbstractIndex, pairs: list[tuple[int, int]]) -> bytes:
    layout = ">ii" if isinstance(index, OffsetIndex) else ">qi"
    return b"".join(struct.pack(layout, *pair) for pair in pairs)


def ascending(seed: int, entries: int) -> list[tuple[int, int]]:
    """Pairs whose first and second numbers both ascend, in steps of 1 to 3."""
    numbers = random.Random(seed)
    firsts = list(accumulate(numbers.randint(1, 3) for _ in range(entries)))
    return list(zip(firsts, accumulate(numbers.randint(1, 3) for _ in range(entries)), strict=True))


def naive(keys: list[int], target: int) -> tuple[int, int]:
    """The greatest slot <= target and the least slot >= it; equality with slot 0 is not seen by the upper one."""
    upper = bisect_left(keys, target)
    if upper == 0 and keys and keys[0] == target:
        upper = 1
    return bisect_right(keys, target) - 1, upper if upper < len(keys) else -1


@KINDS
@given(st.integers(0, 2**32), st.integers(0, 2_500), st.booleans())
@example(1, 0, False)
@example(1, 1, False)
@example(1, 683, False)
@example(1, 684, False)
@example(1, 1025, False)
@example(1, 1026, False)
@example(2, 2500, True)
def test_search_equals_a_naive_search(kind: type[AbstractIndex], seed: int, entries: int, by_value: bool) -> None:
    """Kafka: OffsetIndexTest.randomLookupTest. More than 1,024 (offset) and 682 (time) entries have a cold section."""
    index = kind("unused", BASE, 80_000)
    pairs = ascending(seed, entries)
    buffer = encoded(index, pairs)
    keys = [pair[by_value] for pair in pairs]
    for target in range((keys[-1] if keys else 0) + 3):
        assert index.search(buffer, entries, target, by_value=by_value) == naive(keys, target)


def _touched(kind: type[AbstractIndex]) -> tuple[AbstractIndex, Touches]:
    touches = Touches(kind.key_struct)
    return type("TouchedIndex", (kind,), {"key_struct": touches, "__slots__": ()})("unused", BASE, 80_000), touches


@KINDS
@pytest.mark.parametrize("entries", [1_500, 2_000, 5_003])
def test_a_search_near_the_tail_reads_only_the_last_8_kib(kind: type[AbstractIndex], entries: int) -> None:
    index, touches = _touched(kind)
    pairs = ascending(7, entries)
    buffer = encoded(index, pairs)
    first_hot = entries - 1 - WARM_BYTES // kind.entry_size
    seen: set[int] = set()
    for target in range(pairs[first_hot][0] + 1, pairs[-1][0] + 3):
        touches.positions.clear()
        index.search(buffer, entries, target)
        assert min(touches.positions) >= first_hot * kind.entry_size
        seen |= {position // PAGE_BYTES for position in touches.positions}
    allowed = (first_hot * kind.entry_size, (entries - 1) * kind.entry_size - PAGE_BYTES, len(buffer) - 1)
    assert seen <= {position // PAGE_BYTES for position in allowed}


@KINDS
def test_a_search_before_the_tail_reads_the_cold_section_too(kind: type[AbstractIndex]) -> None:
    """The counterpart: the claim above would hold for a search that never looks at anything."""
    index, touches = _touched(kind)
    pairs = ascending(7, 5_003)
    index.search(encoded(index, pairs), len(pairs), pairs[1_000][0])
    assert min(touches.positions) < (len(pairs) - 1 - WARM_BYTES // kind.entry_size) * kind.entry_size
    touches.positions.clear()
    assert index.search(encoded(index, [(1, 1), (2, 2), (3, 3)]), 2, 3) == (1, -1), "only the entries it was told of"


@pytest.mark.parametrize(("kind", "file_size"), [(OffsetIndex, 10_485_760), (TimeIndex, 10_485_756)], ids=["offset", "time"])
def test_the_file_is_preallocated_sparse_and_rounded_down(tmp_path: Path, kind: type[AbstractIndex], file_size: int) -> None:
    index = kind(f"{tmp_path}/index", BASE, 10_485_760)
    _append(index, 1)
    status = Path(index.path).stat()
    assert status.st_size == file_size == index.max_entries * kind.entry_size
    assert status.st_blocks * 512 <= 64 * 1024
    assert index.size_in_bytes == kind.entry_size


def test_the_file_has_as_many_bytes_as_its_entries_need_or_may_need(index: AbstractIndex) -> None:
    kind, path = type(index), Path(index.path)
    assert list(index.truncate_to(BASE)) == []
    assert not path.exists()
    _append(index, 1)
    assert path.stat().st_size == 240
    drive(FS, index.trim())
    assert path.stat().st_size == kind.entry_size
    assert list(index.trim()) == [], "no operation at all"
    drive(FS, index.mapped(1))
    assert list(index.truncate_to(BASE + 2)) == []
    with pytest.raises(ValueError, match="is full"):
        _append(index, 2)
    index.grow()
    _append(index, 2)
    assert path.stat().st_size == 240
    assert [drive(FS, index.entry(slot)) for slot in range(2)] == [_pair(kind, 1), _pair(kind, 2)]
    with pytest.raises(ValueError, match="below one entry"):
        kind("unused", BASE, kind.entry_size - 1)


def test_what_a_file_means_when_it_is_loaded(index: AbstractIndex) -> None:
    """Kafka: TimeIndexTest.testSanityCheck."""
    kind, path = type(index), Path(index.path)
    assert drive(FS, kind.load(str(path), BASE, 240)) is None
    path.touch()
    loaded = drive(FS, kind.load(str(path), BASE, 240))
    assert loaded is not None
    assert (loaded.entries, loaded.max_entries, loaded.buffer) == (0, 0, None)
    path.write_bytes(bytes(kind.entry_size + 1))
    with pytest.raises(errors.CorruptIndexError, match="not a whole number"):
        drive(FS, kind.load(str(path), BASE, 240))


@pytest.mark.parametrize(
    ("kind", "last"),
    [(OffsetIndex, pair) for pair in ((-1, 20), (4, 20), (6, 9), (0, 0))]
    + [(TimeIndex, pair) for pair in ((11, -1), (9, 6), (11, 4), (0, 0))],
    ids=[f"{kind}: {what}" for kind in ("offset", "time") for what in ("below the base", "key back", "value back", "zeros")],
)
def test_a_last_entry_before_the_first_is_corrupt(tmp_path: Path, kind: type[AbstractIndex], last: tuple[int, int]) -> None:
    """Kafka: TimeIndexTest.testSanityCheck. Zeros are those of a preallocated file."""
    first = (5, 10) if kind is OffsetIndex else (10, 5)
    path = tmp_path / "index"
    path.write_bytes(encoded(kind(str(path), BASE, 240), [first, last]))
    with pytest.raises(errors.CorruptIndexError, match="cannot follow the first one"):
        drive(FS, kind.load(str(path), BASE, 240))


def test_a_reader_that_dropped_its_map_gets_it_back(index: AbstractIndex) -> None:
    """Kafka: OffsetIndexTest.forceUnmapTest, where a lookup without a map fails; here a cold index keeps none."""
    _append(index, 1)
    buffer = drive(FS, index.mapped(1))
    _append(index, 2)
    assert index.entry_at(buffer, 1) == _pair(type(index), 2), "a map shows what is appended later"
    assert drive(FS, index.mapped(2)) is buffer
    index.buffer = None
    assert drive(FS, index.entry(0)) == _pair(type(index), 1)


def test_truncation_leaves_the_map_of_an_earlier_reader_alone(index: AbstractIndex) -> None:
    for number in range(1, 6):
        _append(index, number)
    buffer = drive(FS, index.mapped(5))
    drive(FS, index.truncate_to(BASE + 2))
    index.grow()
    _append(index, 9)
    assert [index.entry_at(buffer, slot) for slot in range(5)] == [_pair(type(index), number) for number in range(1, 6)]
    assert [drive(FS, index.entry(slot)) for slot in range(2)] == [_pair(type(index), 1), _pair(type(index), 9)]


@KINDS
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(-1, 130))
def test_truncate_to_keeps_exactly_the_entries_below_the_offset(
    tmp_path_factory: pytest.TempPathFactory, kind: type[AbstractIndex], seed: int, entries: int, cut: int
) -> None:
    index = kind(str(tmp_path_factory.mktemp("index") / "index"), BASE, 600)
    numbers = [number for number, _ in ascending(seed, entries)]
    for number in numbers:
        _append(index, number)
    drive(FS, index.truncate_to(BASE + cut))
    kept = [_pair(kind, number) for number in numbers if number < cut]
    assert [drive(FS, index.entry(slot)) for slot in range(index.entries)] == kept
    if not kept:
        assert index.tail == index.empty_tail()


def test_a_map_of_fewer_bytes_than_expected_expires_the_snapshot(index: AbstractIndex) -> None:
    _append(index, 1)
    drive(FS, index.trim())
    with pytest.raises(errors.SnapshotExpiredError, match="expected"):
        Map(index, 2 * index.entry_size).run(FS)
    Path(index.path).unlink()
    with pytest.raises(errors.SnapshotExpiredError, match="is gone"):
        Map(index, index.entry_size).run(FS)


def test_slots_without_an_entry_and_offsets_outside_of_32_bits_are_refused(index: AbstractIndex) -> None:
    """Kafka: OffsetIndexTest.testEntryOverflow, TimeIndexTest.testEntryOverflow."""
    for slot in (-1, 0):
        with pytest.raises(ValueError, match=f"slot {slot} requested"):
            drive(FS, index.entry(slot))
    assert [index.relative_offset(BASE + offset) for offset in (0, INT32_MAX)] == [0, INT32_MAX]
    for offset in (BASE - 1, BASE + INT32_MAX + 1):
        with pytest.raises(errors.SegmentOffsetOverflowError, match=str(offset)):
            index.relative_offset(offset)


def put(index: OffsetIndex | TimeIndex, *entry: int, **options: bool) -> None:
    drive(FS, index.write_tail(*index.entry_after(index.tail, *entry, **options)))


def _append(index: AbstractIndex, number: int) -> None:
    """Of the offset that lies so many above the base offset."""
    if isinstance(index, OffsetIndex):
        put(index, BASE + number, number)
    else:
        assert isinstance(index, TimeIndex)
        put(index, number, BASE + number)


def _pair(kind: type[AbstractIndex], number: int) -> tuple[int, int]:
    return (BASE + number, number) if kind is OffsetIndex else (number, BASE + number)


@KINDS
@given(st.sets(st.integers(0, 400), max_size=29), st.integers(-5, 410))
def test_lookup_returns_the_greatest_entry_up_to_the_target(kind: type[AbstractIndex], numbers: set[int], target: int) -> None:
    """Kafka: OffsetIndexTest.randomLookupTest, OffsetIndexTest.lookupExtremeCases, TimeIndexTest.testLookUp."""
    index = kind("unused", BASE, 360)
    tail, buffer, pairs = index.empty_tail(), b"", [_pair(kind, number) for number in sorted(numbers)]
    for pair in pairs:
        tail, entry = index.entry_after(tail, *pair)
        buffer += entry
    wanted = BASE + target if kind is OffsetIndex else target
    below = [pair for pair in pairs if pair[0] <= wanted]
    nothing = (BASE, 0) if kind is OffsetIndex else (-1, BASE)
    assert index.lookup_in(buffer, len(pairs), wanted) == (len(below) - 1, *(below[-1] if below else nothing))


@pytest.fixture
def offsets(tmp_path: Path) -> Iterator[OffsetIndex]:
    """Of 30 entries."""
    offsets = OffsetIndex(f"{tmp_path}/{BASE:020d}.index", BASE, 30 * 8)
    yield offsets
    offsets.buffer = None  # a map keeps a descriptor


def test_the_31st_of_30_offset_entries_and_one_that_is_not_above_the_last_are_refused(offsets: OffsetIndex) -> None:
    """Kafka: OffsetIndexTest.appendTooMany."""
    assert offsets.lookup_in(b"", 0, 92_000) == (-1, BASE, 0)
    put(offsets, BASE + 1, 0)
    for offset in (BASE + 1, BASE):
        with pytest.raises(errors.InvalidOffsetError, match=f"offset {offset} is not above the last one, {BASE + 1}"):
            put(offsets, offset, 1)
    for number in range(2, 31):
        put(offsets, BASE + number, number)
    assert offsets.entries == offsets.max_entries
    with pytest.raises(ValueError, match="it has all of its 30 entries"):
        put(offsets, BASE + 31, 30)
    assert (offsets.entries, offsets.last_offset) == (30, BASE + 30)


def test_a_reopened_index_has_its_entries_and_is_full(offsets: OffsetIndex) -> None:
    """Kafka: OffsetIndexTest.testReopen, testSanityLastOffsetEqualToBaseOffset."""
    for number, entry in enumerate(((BASE, 0), (BASE + 3, 0x01020304)), 1):
        offsets.grow()
        put(offsets, *entry)
        drive(FS, offsets.trim())
        reopened = drive(FS, OffsetIndex.load(offsets.path, BASE, 240))
        assert reopened is not None
        assert (reopened.entries, reopened.last_offset) == (number, entry[0])
        assert drive(FS, reopened.entry(number - 1)) == entry
        with pytest.raises(ValueError, match="is full"):
            put(reopened, BASE + 4, 2)
    assert Path(offsets.path).read_bytes() == bytes.fromhex("00000000 00000000 00000003 01020304"), "relative, big endian"


@pytest.fixture
def times(tmp_path: Path) -> Iterator[TimeIndex]:
    """Of 30 entries, of which the last is reserved."""
    times = TimeIndex(f"{tmp_path}/{BASE:020d}.timeindex", BASE, 30 * 12)
    yield times
    times.buffer = None  # a map keeps a descriptor


def test_the_last_slot_is_reserved(times: TimeIndex) -> None:
    """Kafka: TimeIndexTest.testAppend, testIsFull."""
    for number in range(1, 30):
        put(times, number * 10, BASE + number * 10)
    with pytest.raises(ValueError, match="29 of 30 entries are used, the last is reserved"):
        put(times, 10_000, BASE + 1000)
    with pytest.raises(errors.InvalidOffsetError, match=f"offset {BASE + 235} is below the last one"):
        put(times, 10_000, BASE + 235, skip_full_check=True)
    put(times, 10_000, BASE + 1000, skip_full_check=True)
    assert (times.entries, times.last_entry) == (30, (10_000, BASE + 1000))


def test_the_last_entry_of_an_empty_index_is_no_timestamp_at_the_base_offset(times: TimeIndex) -> None:
    """Kafka: TimeIndexTest.testLastEntry. It ignores no timestamp and takes 0."""
    put(times, -1, BASE)
    assert (times.entries, times.last_entry) == (0, (-1, BASE))
    put(times, 0, BASE)
    assert (times.entries, times.last_entry) == (1, (0, BASE))
    put(times, 0x0102030405060708, BASE + 3)
    drive(FS, times.trim())
    assert Path(times.path).read_bytes() == bytes.fromhex("0000000000000000 00000000 0102030405060708 00000003")


def test_of_timestamps_at_one_offset_the_larger_is_an_entry_the_same_ignored_and_a_lower_one_refused(times: TimeIndex) -> None:
    put(times, 10, BASE + 1)
    assert times.entry_after(times.tail, 10, BASE + 5) == (times.tail, b"")
    assert (times.entries, times.last_entry) == (1, (10, BASE + 1))
    with pytest.raises(ValueError, match="timestamp 9 is below the last one, 10"):
        put(times, 9, BASE + 5)
    put(times, 11, BASE + 1)
    assert (times.entries, times.last_entry) == (2, (11, BASE + 1))


def test_truncation_drops_every_entry_of_an_offset_that_stands_twice(times: TimeIndex) -> None:
    for timestamp, offset in ((1, BASE), (2, BASE + 3), (3, BASE + 3), (4, BASE + 3), (5, BASE + 7)):
        put(times, timestamp, offset)
    drive(FS, times.truncate_to(BASE + 3))
    assert (times.entries, times.last_entry) == (1, (1, BASE))


T = TypeVar("T")


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


def written(path: Path, txns: Sequence[AbortedTxn]) -> TransactionIndex:
    if txns:
        (path / f"{0:020d}.txnindex").write_bytes(b"".join(map(encode_entry, txns)))
    return opened(path)


def entries(index: TransactionIndex) -> list[AbortedTxn]:
    return drive(FS, index.read_entries(index.entries))


def test_an_entry_has_34_bytes_in_this_order_and_a_version_of_one_byte() -> None:
    data = encode_entry(AbortedTxn(1, 2, 3, 4))
    assert data == b"\0\0" + b"".join(value.to_bytes(8, "big") for value in (1, 2, 3, 4))
    assert len(data) == ENTRY_BYTES
    with pytest.raises(CorruptIndexError, match=r"f: entry 1 has version 256"):
        decode_entries("f", encode_entry(FOUR[0]) + b"\x01" + encode_entry(FOUR[1])[1:])


@given(st.lists(st.tuples(*[st.integers(0, 2**63 - 1)] * 4)))
def test_entries_come_back(values: list[tuple[int, int, int, int]]) -> None:
    txns = [AbortedTxn(*value) for value in values]
    assert decode_entries("f", b"".join(map(encode_entry, txns)) + b"partial") == txns


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
    with pytest.raises(ValueError, match=f"the marker at offset {last_offset} is not after the last entry's at 15"):
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


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 511, 513, 1000])
def test_who_reads_the_end_of_a_log_reads_the_end_of_a_transaction_index(tmp_path: Path, count: int) -> None:
    txns = [AbortedTxn(1, 10 * number, 10 * number + 5, 10 * number + 6) for number in range(count)]
    index = written(tmp_path, txns)
    for offset in {0, 5, 6, *(10 * (count - left) + step for left in (0, 1, 62, 64, 65, 400, 512) for step in (0, 5, 6))}:
        found = list(drive(FS, index.read_reaching(offset, count)))
        wanted = [txn for txn in txns if txn.last_offset >= offset]
        assert found[len(found) - len(wanted) :] == wanted
        assert len(found) <= max(64, 8 * (len(wanted) + 1))
    with pytest.raises(SnapshotExpiredError):
        drive(FS, index.read_reaching(0, count + 1))


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
    with pytest.raises(SnapshotExpiredError, match=f"has {size} bytes, expected {4 * ENTRY_BYTES}"):
        entries(index)


def test_a_marker_before_the_base_offset_or_out_of_order_is_a_corrupt_index(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000012.txnindex"
    for wrong in (FOUR[:1], [FOUR[2], FOUR[1]], [FOUR[1], FOUR[1]]):
        path.write_bytes(b"".join(map(encode_entry, wrong)))
        with pytest.raises(CorruptIndexError, match=str(path)):
            opened(tmp_path, 12)


@given(data=st.data())
def test_collecting_over_segments_finds_every_transaction_that_reaches_into_the_range(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_index, "LAST_ENTRIES", 2)
        patch.setattr(transaction_index, "GROWTH", 2)
        for segment in (txns[:cut], txns[cut:]):
            index = written(tmp_path_factory.mktemp("index"), segment)
            if collect_aborted(drive(FS, index.read_reaching(start, len(segment))), start, stop, found):
                break
    assert set(found) == {txn for txn in txns if txn.last_offset >= start and txn.first_offset < stop}
