"""Reading batches from an offset, also over a damaged index; one producer's records; and `fetch.check.crcs`: a reader gets what
was written, or an error that says what is damaged."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.errors import CorruptRecordError, OffsetOutOfRangeError
from triolog.protocol.records.batch import BatchHeader, iter_batches, parse_header
from triolog.protocol.types import NO_OFFSET, CompressionType, Isolation
from triolog.server.config import GapPolicy, LogConfig
from triolog.server.stages.stage_appends import find_producer_records
from triolog.server.storage.disk.paths import INDEX_SUFFIX, segment_file
from triolog.server.storage.errors import OffsetInGapError, SnapshotExpiredError
from triolog.server.storage.log.derived_files import FILE_NAME as DERIVED_FILE
from triolog.server.storage.log.gaps import OffsetGap
from triolog.server.storage.log.leader_epochs import EpochEntry
from triolog.server.storage.lookups.fetch import readable_bytes

from tests.support.compaction import end_transaction
from tests.support.counts import counts, draws
from tests.support.flipped_files import flipped
from tests.support.logs import START_MS, DrivenLog, batch, open_driven

THREE = (START_MS, START_MS, START_MS)


def first_offsets(driven: DrivenLog, offset: int) -> list[int]:
    return [header.base_offset for header, _ in iter_batches(driven.read(offset).records)]


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
        with pytest.raises(OffsetInGapError, match="ontinue from 7"):
            driven.read(offset)
        with pytest.raises(OffsetInGapError, match="ontinue from 7"):
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
    """From any of its offsets. Otherwise the answer is cut at max_bytes. Kafka: UnifiedLogTest.testReadWithMinMessage,
    testReadWithTooSmallMaxLength, testCompressedMessages."""
    for _ in range(3):
        driven.append(batch())
    for offset in range(3):
        fetched = driven.read(offset, 1, min_one_batch=True)
        assert (len(fetched.records), parse_header(fetched.records).base_offset) == (len(batch()), offset)
    for offset, max_bytes in ((1, 1), (1, 0), (0, 2 * len(batch()) - 1)):
        assert len(driven.read(offset, max_bytes, min_one_batch=False).records) == max_bytes
    with pytest.raises(ValueError, match="max_bytes is -1"):
        driven.read(0, -1)
    driven.append(batch(START_MS, START_MS, compression_type=CompressionType.GZIP))
    assert first_offsets(driven, 3) == first_offsets(driven, 4) == [3]


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
    assert caplog.text.count("is damaged: an entry") == 1
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
    """What lies before the offset does not count. Where first batches are gone the sequence tells."""
    driven = mixed(tmp_path)
    assert len(driven.log.segments) > 1
    assert found(driven, 0, 0) == (2, 2, 4)
    assert found(driven, 1, 0) == found(driven, 1, 5) == (3, 5, 9)
    assert found(driven, 0, 4) == found(driven, 2, 0) == found(driven, 1, 9) == (0, NO_OFFSET, NO_OFFSET)
    assert found(driven, 1, 7) == (3, 6, 9)


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


CHECKED = LogConfig(fetch_check_crcs=True, index_interval_bytes=300, segment_bytes=4000)
BATCHES = 60
StoredBatches = list[tuple[Path, int, BatchHeader, bytes]]
"""With path and position."""


def checked_log(tmp_path: Path, config: LogConfig = CHECKED) -> DrivenLog:
    driven = open_driven(tmp_path, config=config)
    driven.log.leader_epochs.assign(0, 0)
    rng = random.Random(5)
    for _ in range(BATCHES):
        driven.append(batch(*[START_MS] * rng.randint(1, 3), value=rng.randbytes(rng.randint(10, 120))))
    assert len(driven.log.segments) >= 2
    return driven


def flip(path: Path, bit: int) -> None:
    path.write_bytes(flipped(path.read_bytes(), bit))


def read_from(driven: DrivenLog, offset: int, max_bytes: int) -> list[bytes]:
    """The whole batches of one answer."""
    return [bytes(data) for _, data in iter_batches(driven.read(offset, max_bytes).records)]


def test_no_flipped_bit_leaves_the_log(tmp_path: Path) -> None:
    """Every answer to every offset is made of batches that were written and begins with the one that holds the offset, or
    it is an error; and the batches that the flip does not touch are all still answered."""
    driven = checked_log(tmp_path)
    stored = {
        offset: data
        for segment in driven.log.segments
        for header, view in iter_batches(Path(segment.log.path).read_bytes()[: segment.size])
        for data in [bytes(view)]
        for offset in range(header.base_offset, header.next_offset)
    }
    sizes = {Path(segment.log.path): segment.size for segment in driven.log.segments}
    rng = draws(11)
    for _ in range(counts(400)):
        path = rng.choice(sorted(sizes))
        bit = rng.randrange(8 * sizes[path])
        flip(path, bit)
        refused: set[bytes] = set()
        for offset, data in stored.items():
            try:
                answer = read_from(driven, offset, rng.choice([1, 400, 100_000]))
            except (CorruptRecordError, SnapshotExpiredError):
                refused.add(data)
                continue
            expected = list(dict.fromkeys(stored[other] for other in range(offset, driven.log.log_end_offset)))
            assert answer == expected[: len(answer)], f"bit {bit} of {path.name}, offset {offset}"
            assert answer, f"bit {bit} of {path.name}: nothing at {offset}"
        assert refused, f"bit {bit} of {path.name} goes unnoticed"
        flip(path, bit)
    driven.log.drop_maps()


def batches_of(driven: DrivenLog) -> StoredBatches:
    """Of all segments."""
    found = []
    for segment in driven.log.segments:
        path, position = Path(segment.log.path), 0
        for header, data in iter_batches(path.read_bytes()[: segment.size]):
            found.append((path, position, header, bytes(data)))
            position += header.size_bytes
    return found


OFFSET_BITS = [*range(64), 8 * 17, *range(8 * 23, 8 * 27)]
"""Where a batch begins and ends is in the first and the last of these fields; the middle one is in its CRC alone."""
FRAME_BITS = [*range(8 * 8, 8 * 12), *range(8 * 16, 8 * 17)]
"""Of the length and the magic byte, which no CRC covers, and without which no header leads on (simulation, seed 50203)."""


@pytest.mark.parametrize(
    ("interval", "bits", "samples"),
    [
        *((interval, OFFSET_BITS, counts(600)) for interval in (300, 4096)),
        *((interval, FRAME_BITS, counts(300)) for interval in (0, 100, 300, 4096)),
    ],
)
def test_a_flipped_bit_of_a_header_hides_its_batch_and_no_other(
    tmp_path: Path, interval: int, bits: list[int], samples: int
) -> None:
    driven = checked_log(tmp_path, attrs.evolve(CHECKED, index_interval_bytes=interval))
    batches = batches_of(driven)
    chosen = draws(3).sample([(number, bit) for number in range(len(batches)) for bit in bits], samples)
    if bits is FRAME_BITS:
        chosen += [(number, 8 * 16 + 5) for number in (0, 1, 7, len(batches) - 2, len(batches) - 1)]
    else:
        chosen += [(number, bit) for number in (0, 1, 7) for bit in (31, 57, 62, 63, 8 * 26 + 1, 8 * 26)]
    for number, bit in chosen:
        path, position, header, _ = batches[number]
        at = 8 * position + (bit & ~7) + 7 - bit % 8
        flip(path, at)
        for other, (_, _, near, data) in list(enumerate(batches))[max(0, number - 5) : number + 6]:
            for offset in range(near.base_offset, near.next_offset):
                said = f"bit {bit} of {header.base_offset} to {header.last_offset} in {path.name}, offset {offset}"
                assert is_refused(driven, offset) == (other == number), said
                assert other == number or read_from(driven, offset, 1) == [data], said
        flip(path, at)
    driven.log.drop_maps()


def test_after_a_damaged_length_or_magic_nothing_is_said_of_the_index(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driven = checked_log(tmp_path, attrs.evolve(CHECKED, index_interval_bytes=0))
    path, position, _, _ = batches_of(driven)[7]
    following = batches_of(driven)[8][2].base_offset
    for bit in (8 * 9, 8 * 16):
        flip(path, 8 * position + bit)
        assert [is_refused(driven, offset) for offset in (following - 1, following)] == [True, False]
        flip(path, 8 * position + bit)
    assert not caplog.records
    driven.log.drop_maps()


DAMAGES: Final = {
    "base offset": range(40),
    "length": range(8 * 8, 8 * 12),
    "magic": range(8 * 16, 8 * 17),
    "crc": range(8 * 17, 8 * 21),
    "last offset delta": range(8 * 23, 8 * 27),
    "records": range(8 * 61, 8 * 70),
}
"""Bits of a batch; those of the base offset make it larger than any in the log."""


@pytest.mark.parametrize("interval", [0, 300, 4096])
def test_two_damaged_batches_hide_none_that_a_whole_neighbour_goes_on_from(tmp_path: Path, interval: int) -> None:
    """Simulation, seed 100550. No damaged one is answered, and the search for them ends."""
    driven = checked_log(tmp_path, attrs.evolve(CHECKED, index_interval_bytes=interval))
    batches, rng = batches_of(driven), draws(3)
    for _ in range(counts(400)):
        first = rng.randrange(1, BATCHES - 3)
        second = first + rng.choice([1, 1, 2])
        kinds = [rng.choice(list(DAMAGES)) for _ in range(2)]
        if kinds == ["length", "magic"] and second == first + 1:
            continue  # nothing says how long the first one is
        bits = [8 * batches[number][1] + rng.choice(DAMAGES[kind]) for number, kind in zip((first, second), kinds, strict=True)]
        flips = [(batches[number][0], (bit & ~7) + 7 - bit % 8) for number, bit in zip((first, second), bits, strict=True)]
        for path, bit in flips:
            flip(path, bit)
        for number in range(first - 1, min(BATCHES, first + 6)):
            _, _, header, data = batches[number]
            said = f"{kinds[0]} of batch {first}, {kinds[1]} of {second}, bits {bits}: batch {number}"
            for offset in range(header.base_offset, header.next_offset):
                if number in (first, second):
                    assert is_refused(driven, offset), said
                elif not first < number < second:
                    assert read_from(driven, offset, 1) == [data], said
        for path, bit in flips:
            flip(path, bit)
    driven.log.drop_maps()


def test_a_batch_that_lost_its_last_offset_to_its_neighbour_does_not_end_its_segment(tmp_path: Path) -> None:
    """An index entry leads to the last batch of the segment, so that the read does not see that batch's neighbour."""
    driven = checked_log(tmp_path)
    path, position, header, _ = batches_of(driven)[55]
    assert (path.name, header.base_offset, header.last_offset) == ("00000000000000000068.log", 99, 101)
    flip(path, 8 * position + 56)
    assert [is_refused(driven, offset) for offset in (98, 99, 100, 101, 102)] == [False, True, True, True, False]
    driven.log.drop_maps()


def test_a_base_offset_before_the_segment_makes_nothing_behind_it_certain(tmp_path: Path) -> None:
    driven = checked_log(tmp_path)
    batches = batches_of(driven)
    (path, first, header, _), (_, second, following, _) = batches[30:32]
    flip(path, 8 * first + 16 + 7)
    flip(path, 8 * second + 7)
    for offset in range(header.base_offset - 1, following.next_offset + 1):
        assert is_refused(driven, offset) == (header.base_offset <= offset < following.next_offset), offset
    driven.log.drop_maps()


def is_refused(driven: DrivenLog, offset: int) -> bool:
    try:
        read_from(driven, offset, 1)
    except CorruptRecordError:
        return True
    return False


def test_a_batch_of_an_epoch_that_the_log_did_not_have_there_is_refused(tmp_path: Path) -> None:
    driven = checked_log(tmp_path)
    assert driven.log.leader_epochs.entries == (EpochEntry(0, 0),)
    flip(Path(driven.log.segments.first.log.path), 8 * 15)
    with pytest.raises(CorruptRecordError, match="has leader epoch 1, the log had 0 there"):
        read_from(driven, 0, 1)
    driven.log.drop_maps()


def test_a_lookup_by_time_does_not_look_into_a_damaged_batch(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, config=CHECKED)
    for step in range(10):
        driven.append(batch(START_MS + step))
    size = len(batch())
    flip(Path(driven.log.active.log.path), 8 * (4 * size + size - 2))
    assert driven.offset_for(START_MS + 3).offset == 3
    with pytest.raises(CorruptRecordError, match="batch at offset 4 carries CRC"):
        driven.offset_for(START_MS + 4)
    driven.log.drop_maps()


@pytest.mark.parametrize("checked", [False, True], ids=["unchecked", "checked"])
@pytest.mark.parametrize("interval", [0, 300, 4096])
def test_behind_a_damaged_length_or_magic_a_time_and_an_offset_are_found(tmp_path: Path, interval: int, checked: bool) -> None:
    """A time is refused where it can be nowhere but in the damaged batch. Also behind a length that says that the batch goes on
    behind the end of its segment: a reader was led into the next one."""
    config = LogConfig(fetch_check_crcs=checked, index_interval_bytes=interval, segment_bytes=2000)
    driven = open_driven(tmp_path, config=config)
    # All of an odd size: no flipped bit of a length leads from one to another.
    value = next(b"\x07" * size for size in (100, 101) if len(batch(value=b"\x07" * size)) % 2)
    for minute in range(BATCHES):
        driven.append(batch(START_MS + minute, value=value))
    assert len(driven.log.segments) >= 3
    batches = batches_of(driven)
    chosen = [(number, bit) for number in range(BATCHES) for bit in FRAME_BITS]
    for number, bit in draws(7).sample(chosen, counts(100)):
        path, position, _, _ = batches[number]
        flip(path, 8 * position + bit)
        for minute in range(max(0, number - 4), min(BATCHES, number + 5)):
            said = f"bit {bit} of batch {number} in {path.name}, minute {minute}"
            try:
                assert driven.offset_for(START_MS + minute).offset == minute, said
            except CorruptRecordError:
                assert minute == number, said
            else:
                assert minute != number or not checked, said
            assert minute <= number or read_from(driven, minute, 1) == [batches[minute][3]], said
        flip(path, 8 * position + bit)
    driven.log.drop_maps()
