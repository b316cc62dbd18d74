"""Index entries against batches: what is right passes, what would mislead a lookup does not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.records.batch import BatchHeader, parse_header
from triolog.server.storage.check.index_matching import IndexFile, OffsetMatching, TimeMatching
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.indexes.offset_index import ENTRY as OFFSET_ENTRY
from triolog.server.storage.indexes.offset_index import OffsetIndex
from triolog.server.storage.indexes.time_index import ENTRY as TIME_ENTRY
from triolog.server.storage.indexes.time_index import TimeIndex

from tests.support.logs import batch

SIZE = 100


def header(base_offset: int, records: int = 2, timestamp: int = 0) -> BatchHeader:
    made = parse_header(batch(*[timestamp] * records))
    return made._replace(base_offset=base_offset, last_offset_delta=records - 1, max_timestamp=timestamp)


HEADERS = [header(2 * number, timestamp=[5, 3, 9, 9, 12][number]) for number in range(5)]
"""Last offsets 1, 3, 5, 7, 9 at positions 0, 100, ..., 400."""


def offset_failures(*entries: tuple[int, int]) -> tuple[int, int]:
    """How many entries are wrong, how many out of order."""
    matching = OffsetMatching(iter(entries))
    for number, each in enumerate(HEADERS):
        if number * SIZE >= matching.due:
            matching.visit(each, number * SIZE)
    matching.finish()
    return matching.failures.count, matching.order.count


def time_failures(*entries: tuple[int, int]) -> tuple[int, int, bool]:
    matching = TimeMatching(iter(entries))
    for each in HEADERS:
        matching.visit(each)
    matching.finish()
    return matching.failures.count, matching.order.count, matching.closing_failure is None


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], (0, 0)),
        ([(3, 100), (7, 300)], (0, 0)),
        ([(5, 100)], (0, 0)),  # Kafka's entry for two batches that were appended together
        ([(3, 101)], (1, 0)),
        ([(4, 100)], (1, 0)),
        ([(9, 500)], (1, 0)),
        ([(7, 100), (5, 200)], (1, 1)),
        ([(3, 100), (3, 100)], (1, 1)),
        ([(2, 100), (7, 300)], (1, 0)),
    ],
)
def test_offset_entries(entries: Iterable[tuple[int, int]], expected: tuple[int, int]) -> None:
    assert offset_failures(*entries) == expected


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(5, 1), (9, 5), (12, 9)], (0, 0, True)),
        ([(12, 9)], (0, 0, True)),
        ([(9, 5)], (0, 0, False)),
        ([(9, 7), (12, 9)], (1, 0, True)),
        ([(3, 3), (12, 9)], (1, 0, True)),
        ([(12, 9), (9, 5)], (1, 1, False)),
        ([(13, 9)], (1, 0, False)),
        ([], (0, 0, False)),
    ],
)
def test_time_entries(entries: Iterable[tuple[int, int]], expected: tuple[int, int, bool]) -> None:
    assert time_failures(*entries) == expected


@given(
    st.lists(st.tuples(st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1)), max_size=30),
    st.integers(0, 5000),
    st.integers(0, 7),
)
def test_an_index_file_has_its_entries_zeros_and_remainder(entries: list[tuple[int, int]], zeros: int, rest: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "00000000000000000000.index")
        path.write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries) + bytes(8 * zeros) + bytes(rest))
        with IndexFile(OsFileSystem(), str(path), OffsetIndex, 0) as file:
            assert (list(file), file.zeros, file.remainder) == (entries, zeros, rest)


def test_one_entry_of_zeros_is_the_time_zero_of_the_first_record(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000007.timeindex"
    path.write_bytes(TIME_ENTRY.pack(0, 0))
    with IndexFile(OsFileSystem(), str(path), TimeIndex, 7) as file:
        assert (list(file), file.zeros) == ([(0, 7)], 0)
