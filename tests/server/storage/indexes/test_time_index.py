"""The time index: 30 slots above base offset 45, of which the last is reserved."""

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
from triolog.server.storage.indexes.time_index import TimeIndex

FS: Final = OsFileSystem()
BASE: Final = 45


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TimeIndex]:
    index = TimeIndex(f"{tmp_path}/{BASE:020d}.timeindex", BASE, 30 * 12)
    yield index
    index.buffer = None  # a map keeps a descriptor


def put(index: TimeIndex, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
    drive(FS, index.maybe_append(timestamp, offset, skip_full_check=skip_full_check))


def fill(index: TimeIndex, entries: int) -> None:
    for number in range(1, entries + 1):
        put(index, number * 10, BASE + number * 10)


def test_lookup_in_an_empty_index_returns_no_timestamp_and_base_offset(index: TimeIndex) -> None:
    """Kafka: TimeIndexTest.testLookUp."""
    assert index.lookup_in(b"", 0, 100) == (-1, -1, BASE)


@given(st.sets(st.integers(0, 400), min_size=1, max_size=29), st.integers(-1, 410))
def test_lookup_returns_the_greatest_entry_at_or_below_the_timestamp(timestamps: set[int], target: int) -> None:
    index = TimeIndex("unused", BASE, 360)
    pairs = [(timestamp, BASE + 3 * slot) for slot, timestamp in enumerate(sorted(timestamps))]
    tail, buffer = index.empty_tail(), b""
    for timestamp, offset in pairs:
        tail, entry = index.entry_after(tail, timestamp, offset)
        buffer += entry
    below = [pair for pair in pairs if pair[0] <= target]
    assert index.lookup_in(buffer, len(pairs), target) == ((len(below) - 1, *below[-1]) if below else (-1, -1, BASE))


def test_the_last_slot_is_reserved(index: TimeIndex) -> None:
    """Kafka: TimeIndexTest.testAppend, testIsFull."""
    fill(index, 29)
    with pytest.raises(ValueError, match="29 of 30 entries are taken, the last is reserved"):
        put(index, 10_000, 1000)
    with pytest.raises(InvalidOffsetError, match="offset 280 is below the last one"):
        put(index, 10_000, 280, skip_full_check=True)
    put(index, 10_000, 1000, skip_full_check=True)
    assert (index.entries, index.last_entry) == (30, (10_000, 1000))


def test_the_last_entry_of_an_empty_index_is_no_timestamp_at_the_base_offset(index: TimeIndex) -> None:
    """Kafka: TimeIndexTest.testLastEntry."""
    assert index.last_entry == (-1, BASE)
    put(index, 1, BASE + 1)
    assert index.last_entry == (1, BASE + 1)


def test_of_timestamps_at_one_offset_the_larger_is_an_entry_the_same_ignored_and_a_lower_one_refused(index: TimeIndex) -> None:
    put(index, 10, BASE + 1)
    assert list(index.maybe_append(10, BASE + 5)) == []
    assert (index.entries, index.last_entry) == (1, (10, BASE + 1))
    with pytest.raises(ValueError, match="timestamp 9 is below the last one, 10"):
        put(index, 9, BASE + 5)
    put(index, 11, BASE + 1)
    assert (index.entries, index.last_entry) == (2, (11, BASE + 1))


def test_an_empty_index_ignores_no_timestamp_and_takes_0(index: TimeIndex) -> None:
    put(index, -1, BASE)
    assert index.entries == 0
    put(index, 0, BASE)
    assert (index.entries, index.last_entry) == (1, (0, BASE))


def test_truncation_drops_every_entry_of_an_offset_that_stands_twice(index: TimeIndex) -> None:
    for timestamp, offset in ((1, BASE), (2, BASE + 3), (3, BASE + 3), (4, BASE + 3), (5, BASE + 7)):
        put(index, timestamp, offset)
    drive(FS, index.truncate_to(BASE + 3))
    assert (index.entries, index.last_entry) == (1, (1, BASE))


def test_an_entry_is_timestamp_and_relative_offset_big_endian(index: TimeIndex) -> None:
    put(index, 0x0102030405060708, BASE + 3)
    drive(FS, index.trim())
    assert Path(index.path).read_bytes() == bytes.fromhex("0102030405060708 00000003")
