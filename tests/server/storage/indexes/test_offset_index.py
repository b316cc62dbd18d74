"""The offset index: 30 entries above base offset 45."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import InvalidOffsetError
from triolog.server.storage.indexes.offset_index import OffsetIndex

FS: Final = OsFileSystem()
BASE: Final = 45


@pytest.fixture
def index(tmp_path: Path) -> Iterator[OffsetIndex]:
    index = OffsetIndex(f"{tmp_path}/{BASE:020d}.index", BASE, 30 * 8)
    yield index
    index.buffer = None  # a map keeps a descriptor


def fill(index: OffsetIndex, *pairs: tuple[int, int]) -> None:
    for offset, position in pairs:
        drive(FS, index.append(offset, position))


def test_lookup_in_an_empty_index_returns_base_offset_and_position_0(index: OffsetIndex) -> None:
    """Kafka: OffsetIndexTest.randomLookupTest."""
    assert drive(FS, index.lookup(92)) == (BASE, 0)
    assert index.lookup_in(b"", 0, 92) == (-1, BASE, 0)


@given(st.sets(st.integers(BASE, BASE + 400), min_size=1, max_size=30), st.integers(BASE - 5, BASE + 410))
def test_lookup_returns_the_greatest_entry_at_or_below_the_target(offsets: set[int], target: int) -> None:
    """Kafka: OffsetIndexTest.randomLookupTest, lookupExtremeCases."""
    index = OffsetIndex("unused", BASE, 240)
    pairs = [(offset, 100 + 7 * slot) for slot, offset in enumerate(sorted(offsets))]
    tail, buffer = index.empty_tail(), b""
    for offset, position in pairs:
        tail, entry = index.entry_after(tail, offset, position)
        buffer += entry
    below = [pair for pair in pairs if pair[0] <= target]
    assert index.lookup_in(buffer, len(pairs), target) == ((len(below) - 1, *below[-1]) if below else (-1, BASE, 0))


def test_the_31st_of_30_entries_is_refused(index: OffsetIndex) -> None:
    """Kafka: OffsetIndexTest.appendTooMany."""
    fill(index, *((BASE + 1 + slot, slot) for slot in range(30)))
    assert index.entries == index.max_entries
    with pytest.raises(ValueError, match="it has all of its 30 entries"):
        fill(index, (BASE + 31, 30))
    assert index.entries == 30


def test_an_offset_that_is_not_above_the_last_one_is_refused(index: OffsetIndex) -> None:
    fill(index, (51, 0))
    for offset in (51, 50):
        with pytest.raises(InvalidOffsetError, match=f"offset {offset} is not above the last one, 51"):
            fill(index, (offset, 1))
    assert (index.entries, index.last_offset) == (1, 51)


def test_a_reopened_index_has_its_entries_and_is_full(index: OffsetIndex) -> None:
    """Kafka: OffsetIndexTest.testReopen."""
    fill(index, (51, 0), (52, 1))
    drive(FS, index.trim())
    reopened = drive(FS, OffsetIndex.load(index.path, BASE, 240))
    assert reopened is not None
    assert (reopened.entries, reopened.last_offset) == (2, 52)
    assert drive(FS, reopened.lookup(51)) == (51, 0)
    assert drive(FS, reopened.lookup(52)) == (52, 1)
    with pytest.raises(ValueError, match="is full"):
        fill(reopened, (53, 2))


def test_a_last_offset_equal_to_the_base_offset_is_sane(tmp_path: Path) -> None:
    """Kafka: OffsetIndexTest.testSanityLastOffsetEqualToBaseOffset."""
    index = OffsetIndex(f"{tmp_path}/index", 20, 240)
    fill(index, (20, 0))
    drive(FS, index.trim())
    reopened = drive(FS, OffsetIndex.load(index.path, 20, 240))
    assert reopened is not None
    assert (reopened.entries, reopened.last_offset) == (1, 20)


def test_an_entry_is_relative_offset_and_position_big_endian(index: OffsetIndex) -> None:
    fill(index, (BASE + 3, 0x01020304))
    drive(FS, index.trim())
    assert Path(index.path).read_bytes() == bytes.fromhex("00000003 01020304")
