"""Reading batches from an offset."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.protocol.errors import OffsetOutOfRangeError
from triolog.protocol.records.batch import iter_batches, parse_header
from triolog.protocol.types import CompressionType
from triolog.server.config import GapPolicy, LogConfig
from triolog.server.storage.errors import OffsetInGapError
from triolog.server.storage.log.gaps import OffsetGap
from triolog.server.storage.lookups.fetch import readable_bytes

from tests.support.logs import START_MS, DrivenLog, batch, open_driven

THREE = (START_MS, START_MS, START_MS)


def first_offsets(driven: DrivenLog, offset: int, max_bytes: int = 1 << 20, *, min_one_batch: bool = True) -> list[int]:
    fetched = driven.read(offset, max_bytes, min_one_batch=min_one_batch)
    return [header.base_offset for header, _ in iter_batches(fetched.records)]


def test_a_read_from_a_gap_between_segments_goes_on_in_the_next_one(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testReadAtLogGap."""
    driven = open_driven(tmp_path)
    driven.append(batch())
    driven.append(batch(*THREE))
    driven.roll()
    driven.append(batch())
    driven.log.segments.first.size = len(batch())  # what compaction leaves: offsets 1 to 3 are gone
    driven.log.changed(segments=True)
    assert first_offsets(driven, 1) == [4]
    assert first_offsets(driven, 3) == [4]
    assert driven.offsets() == [0, 4]


@pytest.mark.parametrize("is_last", [False, True], ids=["records behind it", "nothing behind it"])
def test_a_gap_is_told_also_to_who_reads_from_before_it_where_nothing_is_left(tmp_path: Path, *, is_last: bool) -> None:
    """Compaction took offsets 1 to 3, damage 4 to 6: a consumer at 1 waited for ever (simulation, seed 28)."""
    driven = open_driven(tmp_path, config=LogConfig(gap_policy=GapPolicy.REFUSE))
    for records in (batch(), batch(*THREE), batch(*THREE)):
        driven.append(records)
    driven.roll()
    if not is_last:
        driven.append(batch())
    driven.log.segments.first.size = len(batch())
    driven.log.gaps = (OffsetGap(4, 7, "file"),)
    driven.log.changed(segments=True)
    assert first_offsets(driven, 0) == [0]
    for offset in range(1, 7):
        with pytest.raises(OffsetInGapError, match="go on from 7"):
            driven.read(offset)
        with pytest.raises(OffsetInGapError, match="go on from 7"):
            driven.run(readable_bytes(driven.log.snapshot(), offset, 100, min_one_batch=True))
    assert first_offsets(driven, 7) == ([] if is_last else [7])


def test_reads_outside_of_the_log_are_out_of_range(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testReadOutOfRange."""
    driven = open_driven(tmp_path, log_start_offset=1024)
    driven.append(batch())
    at_end = driven.read(1025)
    assert (len(at_end.records), at_end.high_watermark, at_end.log_start_offset) == (0, 1025, 1024)
    for offset in (0, 1023, 1026):
        with pytest.raises(OffsetOutOfRangeError, match=f"topic-0: offset {offset} is not in 1024 to 1025"):
            driven.read(offset)


def test_the_first_batch_comes_whole_where_one_is_asked_for(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testReadWithMinMessage, testReadWithTooSmallMaxLength. Otherwise the answer is cut at max_bytes."""
    driven = open_driven(tmp_path)
    for _ in range(3):
        driven.append(batch())
    for offset in range(3):
        fetched = driven.read(offset, 1, min_one_batch=True)
        assert (len(fetched.records), parse_header(fetched.records).base_offset) == (len(batch()), offset)
    for offset, max_bytes in ((1, 1), (1, 0), (0, 2 * len(batch()) - 1)):
        assert len(driven.read(offset, max_bytes, min_one_batch=False).records) == max_bytes
    assert first_offsets(driven, 0, len(batch()) * 2 - 1) == [0]
    with pytest.raises(ValueError, match="max_bytes is -1"):
        driven.read(0, -1)


def test_a_compressed_batch_comes_whole_from_any_of_its_offsets(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testCompressedMessages."""
    driven = open_driven(tmp_path)
    for _ in range(2):
        driven.append(batch(START_MS, START_MS, compression_type=CompressionType.GZIP))
    assert [first_offsets(driven, offset)[0] for offset in range(4)] == [0, 0, 2, 2]


def test_an_answer_ends_with_its_segment(tmp_path: Path) -> None:
    driven = open_driven(tmp_path)
    driven.append(batch(*THREE))
    driven.append(batch())
    driven.roll()
    driven.append(batch())
    assert first_offsets(driven, 0) == [0, 3]
    assert first_offsets(driven, 4) == [4]


def test_bytes_behind_the_high_watermark_are_not_read(tmp_path: Path) -> None:
    driven = open_driven(tmp_path)
    driven.append(batch())
    driven.append(batch())
    driven.roll()
    driven.append(batch())
    driven.append(batch())
    log = driven.log
    log.set_high_watermark(3, log.active.base_offset, len(batch()))
    assert first_offsets(driven, 0) == [0, 1]
    assert first_offsets(driven, 2) == [2]
    for offset in (3, 4):
        fetched = driven.read(offset)
        assert len(fetched.records) == 0
        assert fetched.high_watermark == 3
    log.set_high_watermark(1, 0, len(batch()))
    assert first_offsets(driven, 0) == [0]
    assert len(driven.read(2).records) == 0
