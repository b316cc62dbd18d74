"""Index files as arrays: what the broker's own reading of them says, and nothing where they are damaged."""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from triolog.tools.segments.segment_index import read_offset_index, read_offset_tail, read_time_index, read_time_tail

from tests.support.golden import GOLDEN

LOGS: Final = sorted(GOLDEN.glob("*/*/*.log"))


def written(tmp_path: Path, suffix: str, layout: str, entries: list[tuple[int, int]], tail: bytes = b"") -> str:
    path = tmp_path / "00000000000000000100.log"
    path.with_suffix(suffix).write_bytes(b"".join(struct.pack(layout, *entry) for entry in entries) + tail)
    return str(path)


def test_entries_of_kafkas_indexes_are_those_in_their_bytes() -> None:
    for log, (suffix, layout, width) in product(LOGS, ((".index", ">ii", 8), (".timeindex", ">qi", 12))):
        base_offset, size = int(log.stem), log.stat().st_size
        path = log.with_suffix(suffix)
        data = path.read_bytes() if path.exists() else b""
        entries = list(struct.iter_unpack(layout, data))
        while entries and not any(entries[-1]):
            entries.pop()
        assert len(data) % width == 0
        if suffix == ".index":
            found = read_offset_index(str(log), base_offset, size)
            assert list(zip(found.offsets - base_offset, found.positions, strict=True)) == entries
            tail = read_offset_tail(str(log), base_offset, size)
            assert tail.positions.tolist()[-1:] == [position for _, position in entries[-1:]]
        else:
            times = read_time_index(str(log), base_offset)
            assert list(zip(times.timestamps, times.offsets - base_offset, strict=True)) == entries
            assert read_time_tail(str(log), base_offset).timestamps.tolist()[-1:] == [each[0] for each in entries[-1:]]


@pytest.mark.parametrize(
    ("entries", "tail", "damage"),
    [
        ([(5, 100), (4, 200)], b"", "offsets do not ascend, entry 0 has 5"),
        ([(5, 100), (6, 100)], b"", "positions do not ascend"),
        ([(-1, 100)], b"", "offsets begin with -1"),
        ([(5, 100)], b"\x00\x00", "10 bytes, that is no whole number of entries"),
        ([(0, 0), (5, 100), (0, 0), (6, 200)], b"", "offsets do not ascend"),
    ],
)
def test_a_damaged_offset_index_has_a_reason(tmp_path: Path, entries: list[tuple[int, int]], tail: bytes, damage: str) -> None:
    index = read_offset_index(written(tmp_path, ".index", ">ii", entries, tail), 100, 1000)
    assert len(index) == 0
    assert index.damage is not None
    assert damage in index.damage


def test_a_damaged_time_index_is_none_with_a_reason(tmp_path: Path) -> None:
    path = written(tmp_path, ".timeindex", ">qi", [(50, 1), (50, 2)])
    assert read_time_index(path, 100).damage is not None
    path = written(tmp_path, ".timeindex", ">qi", [(50, 2), (60, 1)])
    assert read_time_index(path, 100).damage is not None
    assert read_time_index(written(tmp_path, ".timeindex", ">qi", [(50, 2), (60, 2)]), 100).damage is None


def test_zeros_and_entries_for_what_was_appended_later_do_not_count(tmp_path: Path) -> None:
    path = written(tmp_path, ".index", ">ii", [(5, 100), (9, 300)], bytes(80))
    for index in (read_offset_index(path, 100, 1000), read_offset_tail(path, 100, 1000)):
        assert (index.offsets.tolist(), index.positions.tolist()) == ([105, 109], [100, 300])
    path = written(tmp_path, ".index", ">ii", [(5, 100), (9, 300)])
    assert read_offset_index(path, 100, 300).offsets.tolist() == [105]
    assert read_offset_tail(path, 100, 300).offsets.tolist() == [105]
    times = read_time_index(written(tmp_path, ".timeindex", ">qi", [(50, 5), (60, 9)]), 100)
    assert times.below(109).timestamps.tolist() == [50]


def test_a_missing_index_has_no_entries_and_no_damage(tmp_path: Path) -> None:
    path = str(tmp_path / "00000000000000000000.log")
    for index in (
        read_offset_index(path, 0, 10),
        read_time_index(path, 0),
        read_offset_tail(path, 0, 10),
        read_time_tail(path, 0),
    ):
        assert (len(index), index.damage) == (0, None)
