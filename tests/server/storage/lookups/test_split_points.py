"""Cutting a range of offsets into pieces: together they are the range, each but the first begins with a batch."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidRequestError, OffsetOutOfRangeError
from triolog.protocol.records.batch import BatchHeader, iter_batches
from triolog.server.config import LogConfig
from triolog.server.storage.lookups.split_points import SplitPoint, split_points

from tests.support.logs import START_MS, DrivenLog, batch, open_driven

SMALL: Final = LogConfig().overlay({"index.interval.bytes": "100", "segment.bytes": "2000", "segment.index.bytes": "400"})


def filled(directory: Path, sizes: list[int]) -> DrivenLog:
    """A log of batches with so many records each."""
    driven = open_driven(directory, config=SMALL)
    for size in sizes:
        driven.append(batch(*[START_MS] * size))
    return driven


def cut(driven: DrivenLog, start: int, end: int, target_bytes: int, max_points: int = 1000) -> list[SplitPoint]:
    return driven.run(split_points(driven.log.snapshot(), start, end, target_bytes, max_points))


def headers_of(driven: DrivenLog) -> list[BatchHeader]:
    return [
        header
        for segment in driven.log.segments
        for header, _ in iter_batches(Path(segment.log.path).read_bytes()[: segment.size])
    ]


def bytes_between(headers: list[BatchHeader], start: int, end: int) -> int:
    """Of the batches that hold these offsets."""
    return sum(header.size_bytes for header in headers if header.next_offset > start and header.base_offset < end)


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=60),
    target_bytes=st.integers(1, 3000),
    low=st.floats(0, 1),
    high=st.floats(0, 1),
    max_points=st.integers(1, 50),
)
def test_the_pieces_are_the_range_and_each_begins_with_a_batch(
    sizes: list[int], target_bytes: int, low: float, high: float, max_points: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        driven = filled(Path(directory), sizes)
        start, end = sorted((int(low * sum(sizes)), int(high * sum(sizes))))
        points = cut(driven, start, end, target_bytes, max_points)
        headers = headers_of(driven)
        driven.log.drop_maps()
    offsets = [point.offset for point in points]
    assert offsets == sorted(set(offsets))
    assert len(points) <= max_points
    assert offsets[:1] == ([start] if start < end else [])
    assert {header.base_offset for header in headers} >= set(offsets[1:])
    for point, stop in zip(points, [*offsets[1:], end], strict=False):
        assert point.offset < stop
        assert point.size_bytes == bytes_between(headers, point.offset, stop)
    assert all(point.size_bytes >= target_bytes for point in points[:-1])


def test_a_small_rest_goes_to_the_piece_before(tmp_path: Path) -> None:
    driven = filled(tmp_path, [1] * 21)
    size = len(batch())
    assert [point.size_bytes // size for point in cut(driven, 0, 21, 10 * size)] == [10, 11]
    assert [point.size_bytes // size for point in cut(driven, 0, 18, 10 * size)] == [10, 8]
    driven.log.drop_maps()


def test_a_range_outside_of_the_log_or_the_wrong_way_round_is_refused(tmp_path: Path) -> None:
    driven = filled(tmp_path, [1, 1])
    assert cut(driven, 1, 1, 10) == cut(driven, 2, 2, 10) == []
    for start, end in ((0, 3), (3, 3), (0, 2**40)):
        with pytest.raises(OffsetOutOfRangeError, match=f"topic-0: {start} to {end} does not lie in 0 to 2"):
            cut(driven, start, end, 10)
    with pytest.raises(InvalidRequestError, match="2 to 1 is the wrong way round"):
        cut(driven, 2, 1, 10)


def test_a_damaged_index_gives_larger_pieces_and_no_wrong_ones(tmp_path: Path) -> None:
    driven = filled(tmp_path, [1] * 20)
    index = driven.log.segments.first.offset_index
    Path(index.path).write_bytes(bytes([0, 0, 0, 9, 0, 0, 0, 77]) * index.entries)
    driven.log.drop_maps()
    points = cut(driven, 0, 20, 200)
    assert {header.base_offset for header in headers_of(driven)} >= {point.offset for point in points}
    assert sum(point.size_bytes for point in points) == bytes_between(headers_of(driven), 0, 20)
    driven.log.drop_maps()
