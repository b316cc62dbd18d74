"""What both indexes share: the search, the sparse file, and what an existing file means."""

from __future__ import annotations

import random
import struct
from bisect import bisect_left, bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.limits import INT32_MAX
from triolog.protocol.types import Bytes
from triolog.server.storage.disk.diskops import FileHandle, Map, Truncate, drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CorruptIndexError, SegmentOffsetOverflowError, SnapshotExpiredError
from triolog.server.storage.indexes.index import WARM_BYTES, AbstractIndex
from triolog.server.storage.indexes.offset_index import OffsetIndex
from triolog.server.storage.indexes.time_index import TimeIndex

FS: Final = OsFileSystem()
BASE: Final = 1_000
PAGE_BYTES: Final = 4096
KINDS: Final = pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
FULL_SIZES: Final = pytest.mark.parametrize(
    ("kind", "file_size"), [(OffsetIndex, 10_485_760), (TimeIndex, 10_485_756)], ids=["offset", "time"]
)


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


def pages(positions: list[int]) -> set[int]:
    return {position // PAGE_BYTES for position in positions}


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


@pytest.mark.parametrize(("kind", "struct_name"), [(OffsetIndex, ">i"), (TimeIndex, ">q")])
@pytest.mark.parametrize("entries", [1_500, 2_000, 5_003])
def test_a_search_near_the_tail_reads_only_the_last_8_kib(kind: type[AbstractIndex], struct_name: str, entries: int) -> None:
    touches = Touches(struct.Struct(struct_name))
    index = type("TouchedIndex", (kind,), {"key_struct": touches, "__slots__": ()})("unused", BASE, 80_000)
    pairs = ascending(7, entries)
    buffer = encoded(index, pairs)
    first_hot = entries - 1 - WARM_BYTES // kind.entry_size
    seen: set[int] = set()
    for target in range(pairs[first_hot][0] + 1, pairs[-1][0] + 3):
        touches.positions.clear()
        index.search(buffer, entries, target)
        assert min(touches.positions) >= first_hot * kind.entry_size
        seen |= pages(touches.positions)
    assert len(seen) <= 3
    assert seen <= pages([first_hot * kind.entry_size, (entries - 1) * kind.entry_size - PAGE_BYTES, len(buffer) - 1])


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_a_search_before_the_tail_reads_the_cold_section_too(kind: type[AbstractIndex]) -> None:
    """The counterpart: the claim above would hold for a search that never looks at anything."""
    touches = Touches(kind.key_struct)
    index = type("TouchedIndex", (kind,), {"key_struct": touches, "__slots__": ()})("unused", BASE, 80_000)
    pairs = ascending(7, 5_003)
    index.search(encoded(index, pairs), len(pairs), pairs[1_000][0])
    assert min(touches.positions) < (len(pairs) - 1 - WARM_BYTES // kind.entry_size) * kind.entry_size


@KINDS
def test_a_search_sees_only_the_entries_it_was_told_of(kind: type[AbstractIndex]) -> None:
    index = kind("unused", BASE, 240)
    buffer = encoded(index, [(1, 1), (2, 2), (3, 3)])
    assert index.search(buffer, 2, 3) == (1, -1)


@KINDS
def test_no_file_exists_before_the_first_entry(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    index = kind(f"{tmp_path}/index", BASE, 240)
    drive(FS, index.truncate_to(BASE))
    assert not Path(index.path).exists()


@FULL_SIZES
def test_the_file_is_preallocated_sparse_and_rounded_down(tmp_path: Path, kind: type[AbstractIndex], file_size: int) -> None:
    index = kind(f"{tmp_path}/index", BASE, 10_485_760)
    _append(index, BASE + 1, 1)
    status = Path(index.path).stat()
    assert status.st_size == file_size == index.max_entries * kind.entry_size
    assert status.st_blocks * 512 <= 64 * 1024
    assert index.size_in_bytes == kind.entry_size


@KINDS
def test_trim_cuts_the_file_to_its_entries_and_a_second_one_does_nothing(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    index = kind(f"{tmp_path}/index", BASE, 240)
    _append(index, BASE + 1, 1)
    assert drive(FS, index.trim())
    assert Path(index.path).stat().st_size == kind.entry_size
    assert list(index.trim()) == []  # no operation at all


@KINDS
def test_a_trimmed_index_is_full_until_it_may_grow_again(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    index = kind(f"{tmp_path}/index", BASE, 240)
    _append(index, BASE + 1, 1)
    drive(FS, index.trim())
    with pytest.raises(ValueError, match="is full"):
        _append(index, BASE + 2, 2)
    index.grow()
    _append(index, BASE + 2, 2)
    assert Path(index.path).stat().st_size == 240
    assert [drive(FS, index.entry(slot)) for slot in range(2)] == [_pair(kind, 1), _pair(kind, 2)]


@KINDS
def test_resize_never_cuts_entries(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    index = kind(f"{tmp_path}/index", BASE, 240)
    _append(index, BASE + 1, 1)
    with pytest.raises(ValueError, match="cannot hold 1 entries"):
        drive(FS, index.resize(0))


@KINDS
def test_a_size_below_one_entry_is_refused(kind: type[AbstractIndex]) -> None:
    with pytest.raises(ValueError, match="below one entry"):
        kind("unused", BASE, kind.entry_size - 1)


@KINDS
def test_an_empty_file_loads_without_a_map_and_a_missing_one_as_none(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    path = tmp_path / "index"
    assert drive(FS, kind.load(str(path), BASE, 240)) is None
    path.touch()
    loaded = drive(FS, kind.load(str(path), BASE, 240))
    assert loaded is not None
    assert (loaded.entries, loaded.max_entries, loaded.buffer) == (0, 0, None)


@KINDS
def test_a_length_that_is_no_multiple_of_an_entry_is_corrupt(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    """Kafka: TimeIndexTest.testSanityCheck."""
    path = tmp_path / "index"
    path.write_bytes(bytes(kind.entry_size + 1))
    with pytest.raises(CorruptIndexError, match="not a whole number"):
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
    with pytest.raises(CorruptIndexError, match="cannot follow the first one"):
        drive(FS, kind.load(str(path), BASE, 240))


@KINDS
def test_a_map_shows_what_is_appended_later(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    index = kind(f"{tmp_path}/index", BASE, 240)
    _append(index, BASE + 1, 1)
    buffer = drive(FS, index.mapped(1))
    _append(index, BASE + 2, 2)
    assert index.entry_at(buffer, 1) == _pair(kind, 2)
    assert drive(FS, index.mapped(2)) is buffer


@KINDS
def test_a_reader_that_dropped_its_map_gets_it_back(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    """Kafka: OffsetIndexTest.forceUnmapTest, where a lookup without a map fails; here a cold index keeps none."""
    index = kind(f"{tmp_path}/index", BASE, 240)
    _append(index, BASE + 1, 1)
    drive(FS, index.mapped(1))
    index.buffer = None
    assert drive(FS, index.entry(0)) == _pair(kind, 1)


@KINDS
def test_truncation_leaves_the_map_of_an_earlier_reader_alone(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    index = kind(f"{tmp_path}/index", BASE, 240)
    for number in range(1, 6):
        _append(index, BASE + number, number)
    buffer = drive(FS, index.mapped(5))
    drive(FS, index.truncate_to(BASE + 2))
    index.grow()
    _append(index, BASE + 9, 9)
    assert [index.entry_at(buffer, slot) for slot in range(5)] == [_pair(kind, number) for number in range(1, 6)]
    assert [drive(FS, index.entry(slot)) for slot in range(2)] == [_pair(kind, 1), _pair(kind, 9)]


@KINDS
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(-1, 130))
def test_truncate_to_keeps_exactly_the_entries_below_the_offset(
    tmp_path_factory: pytest.TempPathFactory, kind: type[AbstractIndex], seed: int, entries: int, cut: int
) -> None:
    index = kind(str(tmp_path_factory.mktemp("index") / "index"), BASE, 600)
    pairs = [(offset, 10 * offset) for offset, _ in ascending(seed, entries)]
    for offset, number in pairs:
        _append(index, BASE + offset, number)
    drive(FS, index.truncate_to(BASE + cut))
    kept = [(offset, number) for offset, number in pairs if offset < cut]
    assert index.entries == len(kept)
    assert [drive(FS, index.entry(slot)) for slot in range(len(kept))] == [
        (BASE + offset, number) if kind is OffsetIndex else (number, BASE + offset) for offset, number in kept
    ]
    if not kept:
        assert index.tail == index.empty_tail()


@KINDS
def test_a_map_of_fewer_bytes_than_expected_expires_the_snapshot(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    index = kind(f"{tmp_path}/index", BASE, 240)
    _append(index, BASE + 1, 1)
    drive(FS, index.trim())
    with pytest.raises(SnapshotExpiredError, match="expected"):
        Map(index, 2 * kind.entry_size).run(FS)
    Path(index.path).unlink()
    with pytest.raises(SnapshotExpiredError, match="is gone"):
        Map(index, kind.entry_size).run(FS)


@KINDS
def test_a_slot_without_an_entry_is_refused(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    """Kafka: OffsetIndexTest.testEntryOverflow, TimeIndexTest.testEntryOverflow."""
    index = kind(f"{tmp_path}/index", BASE, 240)
    for slot in (-1, 0):
        with pytest.raises(ValueError, match=f"slot {slot} was asked for"):
            drive(FS, index.entry(slot))


@KINDS
def test_only_offsets_of_32_bits_above_the_base_offset_fit(kind: type[AbstractIndex]) -> None:
    index = kind("unused", BASE, 240)
    assert index.can_append_offset(BASE)
    assert index.can_append_offset(BASE + INT32_MAX)
    for offset in (BASE - 1, BASE + INT32_MAX + 1):
        assert not index.can_append_offset(offset)
        with pytest.raises(SegmentOffsetOverflowError, match=str(offset)):
            index.relative_offset(offset)


@KINDS
def test_a_truncation_that_cuts_nothing_writes_nothing(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    index = kind(f"{tmp_path}/index", BASE, 240)
    _append(index, BASE + 1, 1)
    index.buffer = drive(FS, index.mapped(1))
    assert list(index.truncate_to(BASE + 2)) == []


@KINDS
def test_resize_is_one_truncate_of_whole_entries(tmp_path: Path, kind: type[AbstractIndex]) -> None:
    index = kind(f"{tmp_path}/index", BASE, 240)
    (operation,) = index.resize(5 * kind.entry_size + 1)
    assert operation == Truncate(index.file, 5 * kind.entry_size)
    assert isinstance(index.file, FileHandle)


def _append(index: AbstractIndex, offset: int, number: int) -> None:
    if isinstance(index, OffsetIndex):
        drive(FS, index.append(offset, number))
    else:
        assert isinstance(index, TimeIndex)
        drive(FS, index.maybe_append(number, offset))


def _pair(kind: type[AbstractIndex], number: int) -> tuple[int, int]:
    return (BASE + number, number) if kind is OffsetIndex else (number, BASE + number)
