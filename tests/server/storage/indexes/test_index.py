"""Both indexes: the search, the sparse file, what an existing file means, and what each of them takes as its next entry."""

from __future__ import annotations

import random
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.limits import INT32_MAX
from triolog.protocol.types import Bytes
from triolog.server.storage import errors
from triolog.server.storage.disk.diskops import Map, Truncate, drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.indexes.index import WARM_BYTES, AbstractIndex, OffsetIndex, TimeIndex

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
def test_search_equals_a_naive_search_for_every_target(
    kind: type[AbstractIndex], seed: int, entries: int, by_value: bool
) -> None:
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
    assert drive(FS, index.trim())
    assert path.stat().st_size == kind.entry_size
    assert list(index.trim()) == [], "no operation at all"
    drive(FS, index.mapped(1))
    assert list(index.truncate_to(BASE + 2)) == []
    with pytest.raises(ValueError, match="is full"):
        _append(index, 2)
    with pytest.raises(ValueError, match="cannot hold 1 entries"):
        drive(FS, index.resize(0))
    assert list(index.resize(5 * kind.entry_size + 1)) == [Truncate(index.file, 5 * kind.entry_size)]
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
def test_a_last_entry_that_cannot_follow_the_first_is_corrupt(
    tmp_path: Path, kind: type[AbstractIndex], last: tuple[int, int]
) -> None:
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


def test_a_slot_without_an_entry_is_refused(index: AbstractIndex) -> None:
    """Kafka: OffsetIndexTest.testEntryOverflow, TimeIndexTest.testEntryOverflow."""
    for slot in (-1, 0):
        with pytest.raises(ValueError, match=f"slot {slot} was asked for"):
            drive(FS, index.entry(slot))


def test_only_offsets_of_32_bits_above_the_base_offset_fit(index: AbstractIndex) -> None:
    assert [index.relative_offset(BASE + offset) for offset in (0, INT32_MAX)] == [0, INT32_MAX]
    for offset in (BASE - 1, BASE + INT32_MAX + 1):
        with pytest.raises(errors.SegmentOffsetOverflowError, match=str(offset)):
            index.relative_offset(offset)


def _append(index: AbstractIndex, number: int) -> None:
    """Of the offset that lies so many above the base offset."""
    if isinstance(index, OffsetIndex):
        drive(FS, index.append(BASE + number, number))
    else:
        assert isinstance(index, TimeIndex)
        drive(FS, index.maybe_append(number, BASE + number))


def _pair(kind: type[AbstractIndex], number: int) -> tuple[int, int]:
    return (BASE + number, number) if kind is OffsetIndex else (number, BASE + number)


@KINDS
@given(st.sets(st.integers(0, 400), max_size=29), st.integers(-5, 410))
def test_lookup_returns_the_greatest_entry_at_or_below_the_target(
    kind: type[AbstractIndex], numbers: set[int], target: int
) -> None:
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
    assert drive(FS, offsets.lookup(92_000)) == (BASE, 0)
    drive(FS, offsets.append(BASE + 1, 0))
    for offset in (BASE + 1, BASE):
        with pytest.raises(errors.InvalidOffsetError, match=f"offset {offset} is not above the last one, {BASE + 1}"):
            drive(FS, offsets.append(offset, 1))
    for number in range(2, 31):
        drive(FS, offsets.append(BASE + number, number))
    assert offsets.entries == offsets.max_entries
    with pytest.raises(ValueError, match="it has all of its 30 entries"):
        drive(FS, offsets.append(BASE + 31, 30))
    assert (offsets.entries, offsets.last_offset) == (30, BASE + 30)


def test_a_reopened_index_has_its_entries_and_is_full(offsets: OffsetIndex) -> None:
    """Kafka: OffsetIndexTest.testReopen, testSanityLastOffsetEqualToBaseOffset."""
    for number, entry in enumerate(((BASE, 0), (BASE + 3, 0x01020304)), 1):
        offsets.grow()
        drive(FS, offsets.append(*entry))
        drive(FS, offsets.trim())
        reopened = drive(FS, OffsetIndex.load(offsets.path, BASE, 240))
        assert reopened is not None
        assert (reopened.entries, reopened.last_offset) == (number, entry[0])
        assert drive(FS, reopened.lookup(entry[0])) == entry
        with pytest.raises(ValueError, match="is full"):
            drive(FS, reopened.append(BASE + 4, 2))
    assert Path(offsets.path).read_bytes() == bytes.fromhex("00000000 00000000 00000003 01020304"), "relative, big endian"


@pytest.fixture
def times(tmp_path: Path) -> Iterator[TimeIndex]:
    """Of 30 entries, of which the last is reserved."""
    times = TimeIndex(f"{tmp_path}/{BASE:020d}.timeindex", BASE, 30 * 12)
    yield times
    times.buffer = None  # a map keeps a descriptor


def put(index: TimeIndex, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
    drive(FS, index.maybe_append(timestamp, offset, skip_full_check=skip_full_check))


def test_the_last_slot_is_reserved(times: TimeIndex) -> None:
    """Kafka: TimeIndexTest.testAppend, testIsFull."""
    for number in range(1, 30):
        put(times, number * 10, BASE + number * 10)
    with pytest.raises(ValueError, match="29 of 30 entries are taken, the last is reserved"):
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
    assert list(times.maybe_append(10, BASE + 5)) == []
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
