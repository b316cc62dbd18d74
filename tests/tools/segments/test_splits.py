from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.segments.segment_damage import ReadMode
from triolog.tools.segments.segment_log import read_logs
from triolog.tools.segments.segment_reader import SegmentRead
from triolog.tools.segments.splits import LogRange, SegmentSplit, SplitLimits, pack_splits, plan_splits

from tests.support.segment_files import SPOILS, DrawnBatch, batch_starts, drawn_batches, spoil, write_log
from tests.tools.segments.test_segment_reader import log_in, offsets_of, splits_of, uniform

READ: Final = SegmentRead(columns=("offset",), mode=ReadMode.FAILFAST, chunk_bytes=700)


def read_offsets(splits: list[SegmentSplit]) -> list[int]:
    return offsets_of(splits, READ)


@given(
    segments=st.lists(drawn_batches(), min_size=1, max_size=3),
    index_interval_bytes=st.sampled_from((0, 100, 500, 4096)),
    spoils=st.lists(st.sampled_from(SPOILS), min_size=3, max_size=3),
    noise=st.binary(max_size=64),
    limits=st.builds(
        SplitLimits,
        split_bytes=st.sampled_from((1, 300, 1000, 1 << 26)),
        min_partitions=st.sampled_from((1, 2, 7)),
        max_records=st.none() | st.integers(1, 9),
    ),
    bounds=st.none() | st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_splits_are_the_whole_range_without_overlap_cut_at_batch_starts(
    tmp_path_factory: pytest.TempPathFactory,
    segments: list[list[DrawnBatch]],
    index_interval_bytes: int,
    spoils: list[str],
    noise: bytes,
    limits: SplitLimits,
    bounds: tuple[int, int] | None,
) -> None:
    directory = tmp_path_factory.mktemp("log") / "topic-0"
    written = write_log(directory, segments, index_interval_bytes=index_interval_bytes)
    for path, how in zip(sorted(directory.glob("*.index")), spoils, strict=False):
        spoil(path, how, noise)
    log = log_in(written.directory)
    assert log.end_offset == written.next_offset
    low, high = (log.log_start_offset, log.end_offset) if bounds is None else bounds
    splits = plan_splits([LogRange(log=log, low=low, high=high)], limits)

    by_path = defaultdict(list)
    for split in splits:
        by_path[split.path].append(split)
    for path, of_segment in by_path.items():
        assert [split.start_byte for split in of_segment[1:]] == [split.end_byte for split in of_segment[:-1]]
        assert all(split.start_byte < split.end_byte or len(of_segment) == 1 for split in of_segment)
        assert {position for split in of_segment for position in (split.start_byte, split.end_byte)} <= batch_starts(path)
        if bounds is None:
            assert (of_segment[0].start_byte, of_segment[-1].end_byte) == (0, Path(path).stat().st_size)
    assert read_offsets(splits) == written.offsets(low, high)
    tasks = pack_splits(splits, limits)
    assert [split for task in tasks for split in task] == splits
    shutil.rmtree(directory)


def test_splits_are_cut_behind_their_target_and_never_a_small_rest(tmp_path: Path) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(100)], index_interval_bytes=0)
    splits = splits_of(log_in(written.directory), split_bytes=1000)
    size = written.batches[1][1]
    assert {split.size_bytes for split in splits[:-1]} == {-(-1000 // size) * size}
    assert splits[-1].size_bytes >= 250


def test_no_split_is_a_small_rest(tmp_path: Path) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(11)], index_interval_bytes=0)
    size = written.batches[1][1]
    [split] = splits_of(log_in(written.directory), split_bytes=10 * size)
    assert split.size_bytes == 11 * size


def test_max_records_is_kept_at_index_entries(tmp_path: Path) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(50)], index_interval_bytes=0)
    splits = splits_of(log_in(written.directory), max_records=10)
    assert [len(read_offsets([split])) for split in splits] == [10] * 10


def test_a_range_reads_no_more_than_an_index_interval_beside_it(tmp_path: Path) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(1000)], index_interval_bytes=300)
    [split] = plan_splits([LogRange(log=log_in(written.directory), low=1000, high=1010)], SplitLimits())
    size = written.batches[1][1]
    assert split.size_bytes <= 5 * size + 3 * (300 + size)
    assert read_offsets([split]) == list(range(1000, 1010))


def test_small_segments_share_a_task_up_to_the_size_of_a_split(tmp_path: Path) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10) for _ in range(12)])
    splits = splits_of(log_in(written.directory))
    assert len(splits) == 12
    assert [len(task) for task in pack_splits(splits, SplitLimits())] == [12]
    limits = SplitLimits(split_bytes=3 * splits[0].size_bytes)
    assert [len(task) for task in pack_splits(splits, limits)] == [3, 3, 3, 3]


def test_partitions_do_not_share_a_task(tmp_path: Path) -> None:
    for partition in range(2):
        write_log(tmp_path / f"topic-{partition}", [uniform(3)])
    splits = [split for log in read_logs([str(tmp_path)]) for split in splits_of(log)]
    assert [[split.partition for split in task] for task in pack_splits(splits, SplitLimits())] == [[0], [1]]
