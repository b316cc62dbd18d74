from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import pytest
from triolog.tools.segments.segment_log import find_end_offset
from triolog.tools.segments.segment_reader import SegmentGoneError
from triolog.tools.segments.splits import SegmentSplit

from tests.support.segment_files import DrawnBatch, WrittenLog, write_log
from tests.tools.segments.test_segment_reader import READ, log_in, offsets_of, splits_of, uniform

WITH_LOSS = attrs.evolve(READ, fail_on_data_loss=False)


def cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


@pytest.mark.parametrize("behind", [0, 40, 80])
def test_a_file_that_is_cut_meanwhile_is_data_loss(tmp_path: Path, behind: int, caplog: pytest.LogCaptureFixture) -> None:
    """At the start of a batch, inside of its header, and behind that."""
    written = write_log(tmp_path / "topic-0", [uniform(10)])
    splits = splits_of(log_in(written.directory))
    cut(written.log_path, written.batches[5][1] + behind)
    with pytest.raises(SegmentGoneError, match=f"end at position {written.batches[5][1] + behind} now, 1170 were planned"):
        offsets_of(splits)
    assert offsets_of(splits, WITH_LOSS) == list(range(10))
    assert "may be lost" in caplog.text


@pytest.mark.parametrize("behind", [0, 30])
def test_a_file_that_is_cut_while_a_read_is_planned_ends_there(tmp_path: Path, behind: int) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10)])
    [segment] = log_in(written.directory).segments
    cut(written.log_path, written.batches[5][1] + behind)
    assert find_end_offset(segment) == 10


@pytest.mark.parametrize("tail", [bytes(5000), uniform(1)[0].encode(20)[:-9]], ids=["zeros", "torn"])
def test_a_tail_that_is_cut_off_meanwhile_is_no_loss(tmp_path: Path, tail: bytes) -> None:
    """A broker cuts off what it preallocated when it closes a segment, and what is torn when it starts."""
    written = write_log(tmp_path / "topic-0", [uniform(10)])
    whole = written.log_path.stat().st_size
    with written.log_path.open("ab") as file:
        file.write(tail)
    splits = splits_of(log_in(written.directory))
    cut(written.log_path, whole)
    assert offsets_of(splits) == written.offsets()


def compacted(written: WrittenLog, splits: list[SegmentSplit]) -> list[SegmentSplit]:
    """Put another file in the place of the first segment's, with the same number of batches, larger ones at other offsets."""
    [path] = {split.path for split in splits if split.first_offset < written.batches[-1][2].base_offset}
    batches = [DrawnBatch(times=(0, 1), gap_before=slot % 2, value_bytes=50) for slot in range(20)]
    other = write_log(Path(path).parents[1] / "other-0", [batches])
    shutil.copyfile(other.log_path, path)
    return splits


@pytest.mark.parametrize("split_bytes", [1 << 26, 700], ids=["whole", "cut"])
def test_a_closed_segment_that_is_compacted_meanwhile_is_not_read_by_old_positions(tmp_path: Path, split_bytes: int) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(20), uniform(1)], index_interval_bytes=0)
    splits = compacted(written, splits_of(log_in(written.directory), split_bytes=split_bytes))
    for split in splits[:-1]:
        with pytest.raises(SegmentGoneError, match="it was compacted or cut"):
            offsets_of([split])
        assert offsets_of([split], WITH_LOSS) == []
    assert offsets_of(splits[-1:]) == [40, 41]


def test_a_last_segment_that_is_closed_and_compacted_meanwhile_is_not_read_by_old_positions(tmp_path: Path) -> None:
    """It may have grown before, so its size tells nothing: the batches where it was cut do."""
    written = write_log(tmp_path / "topic-0", [uniform(20)], index_interval_bytes=0)
    splits = splits_of(log_in(written.directory), split_bytes=700)
    assert len(splits) == 4
    batches = [DrawnBatch(times=(0, 1), gap_before=slot % 2, value_bytes=50) for slot in range(30)]
    shutil.copyfile(write_log(tmp_path / "other-0", [batches]).log_path, written.log_path)
    for split in splits[1:]:
        with pytest.raises(SegmentGoneError, match=f"offset {split.first_offset} is not at position {split.start_byte} now"):
            offsets_of([split])
