"""Reading batches from an offset, also over a damaged index, and finding one producer's records."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.errors import OffsetOutOfRangeError
from triolog.protocol.records.batch import iter_batches, parse_header
from triolog.protocol.types import NO_OFFSET, CompressionType, Isolation
from triolog.server.config import GapPolicy, LogConfig
from triolog.server.stages.stage_appends import find_producer_records
from triolog.server.storage.disk.paths import INDEX_SUFFIX, segment_file
from triolog.server.storage.errors import OffsetInGapError
from triolog.server.storage.log.derived_files import FILE_NAME as DERIVED_FILE
from triolog.server.storage.log.gaps import OffsetGap
from triolog.server.storage.lookups.fetch import readable_bytes

from tests.support.compaction import end_transaction
from tests.support.counts import counts
from tests.support.flipped_files import flipped
from tests.support.logs import START_MS, DrivenLog, batch, open_driven

THREE = (START_MS, START_MS, START_MS)


def first_offsets(driven: DrivenLog, offset: int, max_bytes: int = 1 << 20, *, min_one_batch: bool = True) -> list[int]:
    fetched = driven.read(offset, max_bytes, min_one_batch=min_one_batch)
    return [header.base_offset for header, _ in iter_batches(fetched.records)]


def test_a_read_from_a_gap_between_segments_goes_on_in_the_next_one(driven: DrivenLog) -> None:
    """Kafka: UnifiedLogTest.testReadAtLogGap."""
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


def test_the_first_batch_comes_whole_where_one_is_asked_for(driven: DrivenLog) -> None:
    """Kafka: UnifiedLogTest.testReadWithMinMessage, testReadWithTooSmallMaxLength. Otherwise the answer is cut at max_bytes."""
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


def test_a_compressed_batch_comes_whole_from_any_of_its_offsets(driven: DrivenLog) -> None:
    """Kafka: UnifiedLogTest.testCompressedMessages."""
    for _ in range(2):
        driven.append(batch(START_MS, START_MS, compression_type=CompressionType.GZIP))
    assert [first_offsets(driven, offset)[0] for offset in range(4)] == [0, 0, 2, 2]


def test_an_answer_ends_with_its_segment_and_before_the_high_watermark(driven: DrivenLog) -> None:
    for number in range(4):
        driven.append(batch())
        if number == 1:
            driven.roll()
    log = driven.log
    assert [first_offsets(driven, offset) for offset in (0, 2)] == [[0, 1], [2, 3]]
    log.set_high_watermark(3, log.active.base_offset, len(batch()))
    assert [first_offsets(driven, offset) for offset in (0, 2)] == [[0, 1], [2]]
    for offset in (3, 4):
        fetched = driven.read(offset)
        assert (len(fetched.records), fetched.high_watermark) == (0, 3)
    log.set_high_watermark(1, 0, len(batch()))
    assert first_offsets(driven, 0) == [0]
    assert len(driven.read(2).records) == 0


CONFIG: Final = LogConfig().overlay({"index.interval.bytes": "1", "segment.index.bytes": "240"})
FLIPS: Final = counts(1000, commit=60)


def filled(directory: Path) -> DrivenLog:
    """A closed segment with an index entry for each batch, aborted transactions among them, and another one.

    As where Kafka wrote the index, its checksum is not known."""
    driven = open_driven(directory, config=CONFIG)
    for number in range(5):
        driven.append(batch(START_MS + number, value=b"plain"))
        driven.append(
            batch(START_MS, value=b"aborted", producer_id=7, producer_epoch=0, base_sequence=number, is_transactional=True)
        )
        driven.append(batch(START_MS + number, value=b"between"))
        end_transaction(driven, 7, commit=False)
    driven.roll()
    driven.append(batch(START_MS + 9))
    driven.close()
    (directory / DERIVED_FILE).unlink()
    return driven


def answers(driven: DrivenLog) -> tuple[object, ...]:
    """Every read by offset, small ones too, and those of committed records."""
    end = driven.log.log_end_offset
    offsets = range(end)
    return (
        [bytes(driven.read(offset, 1).records) for offset in offsets],
        [driven.read(offset, 300, isolation=Isolation.READ_COMMITTED).aborted for offset in offsets],
        [record.offset for record in driven.records(Isolation.READ_COMMITTED)],
    )


def test_no_flipped_bit_of_an_offset_index_changes_a_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driven = filled(tmp_path / "log")
    end = driven.log.log_end_offset
    path = tmp_path / "log" / segment_file(0, INDEX_SUFFIX)
    whole = path.read_bytes()
    offsets, _, committed = answers(driven.reopen(was_clean=True, recovery_point=end))
    bits = random.Random(1).sample(range(8 * len(whole)), min(FLIPS, 8 * len(whole)))
    for bit in bits:
        path.write_bytes(flipped(whole, bit))
        found, _, found_committed = answers(driven.reopen(was_clean=True, recovery_point=end))
        assert (found, found_committed) == (offsets, committed), f"bit {bit}"
    assert f"{path} is damaged" in caplog.text


def test_an_entry_that_leads_nowhere_is_said_once_and_read_around(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driven = filled(tmp_path / "log")
    end = driven.log.log_end_offset
    path = tmp_path / "log" / segment_file(0, INDEX_SUFFIX)
    content = bytearray(path.read_bytes())
    content[12] |= 0x80  # a position below zero, which the system refuses to read at
    path.write_bytes(content)
    again = driven.reopen(was_clean=True, recovery_point=end)
    assert again.offsets() == [offset for offset in range(end) if offset % 4 != 3]  # there the markers are
    assert [record.offset for record in again.records(Isolation.READ_COMMITTED)] == [*range(0, end, 2)]
    assert [again.offset_for(START_MS + number).offset for number in range(5)] == [0, 4, 8, 12, 16]
    assert caplog.text.count("is damaged: an entry leads to no batch") == 1
    assert "triolog reindex" in caplog.text


SMALL: Final = LogConfig().overlay({"segment.bytes": "220", "index.interval.bytes": "1", "segment.index.bytes": "120"})


def mixed(directory: Path) -> DrivenLog:
    """Offsets 0, 1: nobody's; 2, 3: the producer's epoch 0; 4: nobody's; 5 to 8: its epoch 1, with one of another between."""
    driven = open_driven(directory, config=SMALL)
    driven.append(batch(START_MS, START_MS))
    driven.append(batch(START_MS, START_MS, producer_id=7, producer_epoch=0, base_sequence=0))
    driven.append(batch())
    driven.append(batch(START_MS, START_MS, producer_id=7, producer_epoch=1, base_sequence=0))
    driven.append(batch(producer_id=8, producer_epoch=1, base_sequence=0))
    driven.append(batch(producer_id=7, producer_epoch=1, base_sequence=2))
    return driven


def found(driven: DrivenLog, epoch: int, start_offset: int) -> tuple[int, int, int]:
    records = driven.run(find_producer_records(driven.log.snapshot(), 7, epoch, start_offset))
    driven.log.drop_maps()
    assert records.lost == ()
    return records[:3]


def test_records_are_counted_for_one_producer_and_epoch_across_segments(tmp_path: Path) -> None:
    driven = mixed(tmp_path)
    assert len(driven.log.segments) > 1
    assert found(driven, 0, 0) == (2, 2, 4)
    assert found(driven, 1, 0) == found(driven, 1, 5) == (3, 5, 9)


def test_what_lies_before_the_offset_does_not_count(tmp_path: Path) -> None:
    driven = mixed(tmp_path)
    assert found(driven, 0, 4) == (0, NO_OFFSET, NO_OFFSET)
    assert found(driven, 2, 0) == (0, NO_OFFSET, NO_OFFSET)
    assert found(driven, 1, 9) == (0, NO_OFFSET, NO_OFFSET)


def test_records_whose_first_batches_are_gone_are_counted_by_their_sequence(tmp_path: Path) -> None:
    assert found(mixed(tmp_path), 1, 7) == (3, 6, 9)


def test_sequences_that_are_missing_where_a_gap_lies_are_lost_and_others_were_compacted(tmp_path: Path) -> None:
    driven = mixed(tmp_path)
    snapshot = attrs.evolve(driven.log.snapshot(), log_end_offset=12)

    def lost(start_offset: int, *gaps: tuple[int, int], known_count: int = 0) -> tuple[range, ...]:
        damaged = attrs.evolve(snapshot, gaps=tuple(OffsetGap(*gap, "-") for gap in gaps))
        found = driven.run(find_producer_records(damaged, 7, 1, start_offset, known_count))
        assert found.records_count == max(3, known_count)
        return found.lost

    assert lost(7, known_count=5) == lost(7, (2, 5)) == lost(7, (9, 12)) == lost(5, (7, 8)) == ()
    assert lost(7, (7, 8)) == (range(2),)
    assert lost(7, (6, 8), (9, 12), known_count=5) == (range(2), range(3, 5))
    driven.log.drop_maps()
