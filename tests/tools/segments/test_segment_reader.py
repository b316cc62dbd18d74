from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.records.batch import end_txn_marker
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import CompressionType
from triolog.server.offline.stored_records import RecordRange, find_transactions, stored_batches
from triolog.server.storage.directory.inventory import read_partition
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.tools.segments import segment_reader
from triolog.tools.segments.segment_bytes import SegmentBytes
from triolog.tools.segments.segment_damage import DamagedSegmentError, ReadMode
from triolog.tools.segments.segment_log import LogInUseError, PartitionLog, find_end_offset, read_logs
from triolog.tools.segments.segment_reader import SegmentGoneError, SegmentRead, SplitReader, read_split
from triolog.tools.segments.segment_times import first_offset_at
from triolog.tools.segments.segment_transactions import committed_range
from triolog.tools.segments.splits import LogRange, SegmentSplit, SplitLimits, plan_splits

from tests.support.record_batches import with_records
from tests.support.segment_files import START_MS, DrawnBatch, WrittenLog, drawn_batches, write_log

READ: Final = SegmentRead(columns=("offset",))
LENIENT: Final = (ReadMode.PERMISSIVE, ReadMode.DROPMALFORMED)


def log_in(directory: Path) -> PartitionLog:
    [log] = read_logs([str(directory)])
    return log


def splits_of(log: PartitionLog, *, committed: bool = False, **limits: Any) -> list[SegmentSplit]:
    low, high = log.log_start_offset, log.end_offset
    wanted = committed_range(log, low, high) if committed else LogRange(log=log, low=low, high=high)
    return plan_splits([wanted], SplitLimits(**limits))


def offsets_of(splits: list[SegmentSplit], read: SegmentRead = READ) -> list[int]:
    return [offset for split in splits for batch in read_split(split, read) for offset in batch.column(0).to_pylist()]


def uniform(batches: int, *, records: int = 2, value_bytes: int = 20) -> list[DrawnBatch]:
    return [DrawnBatch(times=tuple(range(records)), value_bytes=value_bytes) for _ in range(batches)]


def overwrite(written: WrittenLog, slot: int, data: bytes, *, at: int = 0) -> int:
    """Put bytes over a batch; answers the batch's position."""
    path, position, _ = written.batches[slot]
    with open(path, "r+b") as file:
        file.seek(position + at)
        file.write(data)
    return position


@given(batches=drawn_batches(), chunk_bytes=st.integers(61, 2000), max_records=st.integers(1, 5))
def test_chunks_of_any_size_give_every_record_once(
    tmp_path_factory: pytest.TempPathFactory, batches: list[DrawnBatch], chunk_bytes: int, max_records: int
) -> None:
    written = write_log(tmp_path_factory.mktemp("log") / "topic-0", [batches])
    read = attrs.evolve(READ, chunk_bytes=chunk_bytes, max_records=max_records, mode=ReadMode.FAILFAST)
    splits = splits_of(log_in(written.directory))
    assert offsets_of(splits, read) == written.offsets()
    assert all(batch.num_rows <= max_records for split in splits for batch in read_split(split, read))


def test_highly_compressed_chunks_are_made_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DECODED_BYTES", "SMALLEST_CHUNK_BYTES"):
        monkeypatch.setattr(segment_reader, name, getattr(segment_reader, name) // 16)
    batches = [DrawnBatch(times=(0, 1), value_bytes=2 << 16, compression=CompressionType.ZSTD) for _ in range(40)]
    log = log_in(write_log(tmp_path / "topic-0", [batches]).directory)
    [split] = splits_of(log)
    read = SegmentRead(columns=("value",), chunk_bytes=split.size_bytes // 4)
    with SegmentBytes(split.path, split.end_byte) as file:
        sizes = [batch.nbytes for batch in SplitReader(file, split, read).run(lambda: None)]
    assert sum(sizes) > 10 << 20
    assert max(sizes) < 70 << 16


def test_something_is_done_between_chunks(tmp_path: Path) -> None:
    log = log_in(write_log(tmp_path / "topic-0", [uniform(20)]).directory)
    calls: list[None] = []
    [split] = splits_of(log)
    read = attrs.evolve(READ, chunk_bytes=split.size_bytes // 4)
    list(read_split(split, read, between_chunks=lambda: calls.append(None)))
    assert 4 <= len(calls) <= 6


@pytest.mark.parametrize("mode", LENIENT)
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda written: overwrite(written, 5, b"\xff", at=70), id="a record's byte"),
        pytest.param(lambda written: overwrite(written, 5, bytes(written.batches[5][2].size_bytes)), id="zeros"),
        pytest.param(lambda written: overwrite(written, 5, random.Random(3).randbytes(80)), id="noise over the header"),
        pytest.param(lambda written: overwrite(written, 5, b"\x7f\xff", at=8), id="a length out of the file"),
    ],
)
def test_a_damaged_batch_is_left_out_and_no_other(tmp_path: Path, spoil: Callable[[WrittenLog], int], mode: ReadMode) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10), uniform(3)])
    log = log_in(written.directory)
    spoil(written)
    found = offsets_of(splits_of(log), attrs.evolve(READ, mode=mode))
    restored = {10, 11} if mode is ReadMode.PERMISSIVE and 10 in found else set()
    assert set(found) - restored == set(written.offsets()) - {10, 11}
    assert found == sorted(found)


@pytest.mark.parametrize("length", [b"\x03", b"\x00\x00\x00\x70"])
def test_a_damaged_length_takes_no_batch_with_it_where_compaction_has_left_gaps(tmp_path: Path, length: bytes) -> None:
    """It leads out of the file, or into a later batch; the one behind has not the offset that the header promises."""
    batches = [DrawnBatch(times=(0,), gap_before=slot % 2, value_bytes=0) for slot in range(6)]
    written = write_log(tmp_path / "topic-0", [batches, uniform(1)])
    log = log_in(written.directory)
    lost = overwrite(written, 2, length, at=8)
    assert lost
    found = offsets_of(splits_of(log), attrs.evolve(READ, mode=ReadMode.DROPMALFORMED))
    assert found == [offset for offset in written.offsets() if offset != written.batches[2][2].base_offset]


def test_failfast_names_the_file_and_the_position(tmp_path: Path) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10)])
    position = overwrite(written, 5, b"\xff", at=70)
    with pytest.raises(DamagedSegmentError, match=f"{written.log_path}: position {position}: .*CRC") as caught:
        offsets_of(splits_of(log_in(written.directory)), attrs.evolve(READ, mode=ReadMode.FAILFAST))
    assert (caught.value.path, caught.value.position) == (str(written.log_path), position)


def test_permissive_tells_of_damage_and_dropmalformed_does_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10)])
    position = overwrite(written, 5, b"\xff", at=70)
    splits = splits_of(log_in(written.directory))
    with caplog.at_level(logging.INFO):
        offsets_of(splits, attrs.evolve(READ, mode=ReadMode.DROPMALFORMED))
        assert not caplog.messages
        offsets_of(splits)
    one, total = caplog.messages
    assert one.startswith(f"{written.log_path}: position {position}: ")
    assert one.endswith("with the offsets 10 to 11")
    size = written.batches[5][2].size_bytes
    assert total == f"{written.log_path}: 1 damaged parts: read 0 anyway, skipped {size} bytes and 2 offsets"


@pytest.mark.parametrize("mode", LENIENT)
def test_a_batch_with_a_right_crc_and_wrong_records_is_left_out(tmp_path: Path, mode: ReadMode) -> None:
    bad, _ = with_records(b"\x02\x00", count=1, base_offset=6)
    written = WrittenLog(tmp_path / "topic-0")
    written.records = []
    written.directory.mkdir()
    batches = [drawn.encode(2 * slot) for slot, drawn in enumerate(uniform(3))]
    after = uniform(1)[0].encode(7)
    (written.directory / f"{0:020d}.log").write_bytes(b"".join([*batches, bad, after]))
    log = log_in(written.directory)
    assert offsets_of(splits_of(log), attrs.evolve(READ, columns=("offset", "value"), mode=mode)) == [0, 1, 2, 3, 4, 5, 7, 8]
    with pytest.raises(DamagedSegmentError, match=f"position {sum(map(len, batches))}: batch at offset 6"):
        offsets_of(splits_of(log), attrs.evolve(READ, columns=("offset", "value"), mode=ReadMode.FAILFAST))


def test_without_crcs_only_what_cannot_be_read_is_damage(tmp_path: Path) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10)])
    overwrite(written, 5, b"\xff", at=75)
    splits = splits_of(log_in(written.directory))
    assert offsets_of(splits, attrs.evolve(READ, check_crcs=False, mode=ReadMode.FAILFAST)) == written.offsets()


@given(data=st.data(), batches=drawn_batches(), chunk_bytes=st.sampled_from((200, 1000, 1 << 22)))
def test_whatever_is_overwritten_every_untouched_batch_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, batches: list[DrawnBatch], chunk_bytes: int
) -> None:
    written = write_log(tmp_path_factory.mktemp("log") / "topic-0", [[*batches, *uniform(2)], uniform(1)])
    log = log_in(written.directory)
    path, last, _ = written.batches[len(batches) + 1]
    start = data.draw(st.integers(0, last - 1))
    noise = data.draw(st.binary(min_size=1, max_size=60))[: last - start]
    whole = bytearray(Path(path).read_bytes())
    whole[start : start + len(noise)] = noise
    Path(path).write_bytes(whole)
    touched = {
        offset
        for batch_path, position, header in written.batches
        if batch_path == path and position < start + len(noise) and start < position + header.size_bytes
        for offset in range(header.base_offset, header.next_offset)
    }
    read = attrs.evolve(READ, chunk_bytes=chunk_bytes, mode=ReadMode.DROPMALFORMED)
    for split_bytes in (1 << 26, 300):
        found = offsets_of(splits_of(log, split_bytes=split_bytes), read)
        assert found == sorted(set(found))
        assert set(written.offsets()) - touched <= set(found) <= set(written.offsets())


@pytest.mark.parametrize("mode", list(ReadMode))
@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_torn_tail_is_no_damage(tmp_path: Path, cut: int, mode: ReadMode) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10)])
    path = written.log_path
    path.write_bytes(path.read_bytes()[:-cut])
    log = log_in(written.directory)
    assert log.end_offset == 18
    assert offsets_of(splits_of(log), attrs.evolve(READ, mode=mode)) == written.offsets(0, 18)


@pytest.mark.parametrize("mode", list(ReadMode))
def test_the_zeros_of_a_preallocated_file_are_no_damage(tmp_path: Path, mode: ReadMode) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10)])
    with written.log_path.open("r+b") as file:
        file.truncate(1 << 20)
    log = log_in(written.directory)
    assert offsets_of(splits_of(log), attrs.evolve(READ, mode=mode)) == written.offsets()


def test_a_closed_segment_that_is_cut_is_damaged(tmp_path: Path) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10), uniform(2)])
    path = min(written.directory.glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1])
    splits = splits_of(log_in(written.directory))
    with pytest.raises(DamagedSegmentError):
        offsets_of(splits, attrs.evolve(READ, mode=ReadMode.FAILFAST))
    assert offsets_of(splits) == [offset for offset in written.offsets() if offset not in (18, 19)]


def test_what_is_appended_after_planning_is_not_read(tmp_path: Path) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10)])
    splits = splits_of(log_in(written.directory))
    with written.log_path.open("ab") as file:
        file.write(uniform(1)[0].encode(20))
    assert offsets_of(splits) == list(range(20))


def test_a_segment_that_is_deleted_meanwhile_is_data_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10), uniform(2)])
    splits = splits_of(log_in(written.directory))
    min(written.directory.glob("*.log")).unlink()
    with pytest.raises(SegmentGoneError, match="ffsets 0 to 19 of topic-0 may be lost"):
        offsets_of(splits)
    assert offsets_of(splits, attrs.evolve(READ, fail_on_data_loss=False)) == [20, 21, 22, 23]
    assert "may be lost" in caplog.text


def test_a_compaction_that_is_being_swapped_in_is_refused(tmp_path: Path) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(1)])
    (written.directory / f"{0:020d}.log.swap").write_bytes(b"")
    with pytest.raises(LogInUseError, match="snapshot=server"):
        read_logs([str(written.directory)])


@attrs.define
class TransactionLog:
    """Batches of producers in transactions, plain ones between them."""

    batches: list[bytes] = attrs.field(factory=list)
    next_offset: int = 0

    def add(self, producer_id: int = -1) -> None:
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
        record = (START_MS, b"key", b"value", ())
        batch = build_batch([record] * 2, base_offset=self.next_offset, is_transactional=producer_id >= 0, **options)
        self.batches.append(batch)
        self.next_offset += 2

    def end(self, producer_id: int, *, commit: bool) -> None:
        marker = end_txn_marker(
            producer_id=producer_id,
            producer_epoch=0,
            commit=commit,
            timestamp=START_MS,
            coordinator_epoch=0,
            base_offset=self.next_offset,
        )
        self.batches.append(marker)
        self.next_offset += 1


@given(
    steps=st.lists(st.tuples(st.integers(-1, 2), st.sampled_from(("data", "data", "commit", "abort"))), max_size=25),
    segment_batches=st.integers(1, 8),
    split_bytes=st.sampled_from((1, 400, 1 << 26)),
    chunk_bytes=st.sampled_from((100, 500, 1 << 22)),
)
def test_a_committed_read_is_what_a_scan_of_the_whole_log_says(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, str]],
    segment_batches: int,
    split_bytes: int,
    chunk_bytes: int,
) -> None:
    """No transaction index and no producer snapshot is there: batches and markers alone tell."""
    log = TransactionLog()
    for producer_id, step in steps:
        if step == "data" or producer_id < 0:
            log.add(producer_id)
        else:
            log.end(producer_id, commit=step == "commit")
    written = WrittenLog(tmp_path_factory.mktemp("log") / "topic-0")
    for first in range(0, len(log.batches), segment_batches) or [0]:
        written.append_segment(log.batches[first : first + segment_batches])
    files = read_partition(OsFileSystem(), str(written.directory))
    transactions = find_transactions(OsFileSystem(), files, lambda _: None)
    expected = [
        record.offset
        for records in stored_batches(
            OsFileSystem(),
            files,
            RecordRange(committed=True),
            transactions,
            damaged=lambda path, damage: None,
            advance=lambda size: None,
        )
        for record in records
    ]
    splits = splits_of(log_in(written.directory), committed=True, split_bytes=split_bytes)
    assert offsets_of(splits, attrs.evolve(READ, chunk_bytes=chunk_bytes, mode=ReadMode.FAILFAST)) == expected


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


LEFT_OUT = {ReadMode.PERMISSIVE: (), ReadMode.DROPMALFORMED: (10, 11)}


@given(
    mode=st.sampled_from(list(LEFT_OUT)),
    offset=st.sampled_from([11, 15, 19, 1 << 20]),
    chunk_bytes=st.sampled_from([6 * 117, 6 * 117 + 60]) | st.integers(61, 1500),
)
@example(mode=ReadMode.PERMISSIVE, offset=1 << 20, chunk_bytes=6 * 117)
@example(mode=ReadMode.DROPMALFORMED, offset=11, chunk_bytes=6 * 117 + 60)
def test_wrong_offsets_are_seen(
    tmp_path_factory: pytest.TempPathFactory, mode: ReadMode, offset: int, chunk_bytes: int
) -> None:
    written = write_log(tmp_path_factory.mktemp("log") / "topic-0", [uniform(10), uniform(2)])
    splits = splits_of(log_in(written.directory))
    overwrite(written, 5, offset.to_bytes(8, "big"))
    found = offsets_of(splits, attrs.evolve(READ, mode=mode, chunk_bytes=chunk_bytes))
    assert found == [each for each in written.offsets() if each not in LEFT_OUT[mode]]
    with pytest.raises(DamagedSegmentError, match=f"position {5 * 117}: base_offset {offset} for 10"):
        offsets_of(splits, attrs.evolve(READ, mode=ReadMode.FAILFAST, chunk_bytes=chunk_bytes))


@pytest.mark.parametrize("mode", [*LEFT_OUT, ReadMode.FAILFAST])
@pytest.mark.parametrize("tail", [b"", bytes(70), bytes(7)], ids=len)
@pytest.mark.parametrize(("at", "damage"), [(16, b"\x7f"), (0, b"\x00\x00\x01")], ids=["magic", "offset"])
def test_a_last_batch_with_a_damaged_start_is_read(tmp_path: Path, at: int, damage: bytes, tail: bytes, mode: ReadMode) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10)])
    with written.log_path.open("ab") as file:
        file.write(tail)
    overwrite(written, 9, damage, at=at)
    log = log_in(written.directory)
    assert log.end_offset == 20
    if mode is ReadMode.FAILFAST:
        with pytest.raises(DamagedSegmentError, match="position 1053"):
            offsets_of(splits_of(log), attrs.evolve(READ, mode=mode))
    else:
        lost = () if mode is ReadMode.PERMISSIVE else (18, 19)
        assert offsets_of(splits_of(log), attrs.evolve(READ, mode=mode)) == [each for each in range(20) if each not in lost]


@pytest.mark.parametrize("offset", [13, 1 << 40])
def test_planning_does_not_believe_an_offset_that_those_behind_it_contradict(tmp_path: Path, offset: int) -> None:
    batches = [DrawnBatch(times=(10 * slot, 10 * slot + 5)) for slot in range(10)]
    written = write_log(tmp_path / "topic-0", [batches], index_interval_bytes=1 << 20)
    overwrite(written, 5, offset.to_bytes(8, "big"))
    log = log_in(written.directory)
    assert log.end_offset == 20
    assert [first_offset_at(log, START_MS + 10 * slot + 5) for slot in range(4, 8)] == [9, 11, 13, 15]


@pytest.mark.parametrize("high", [4, 5, 6])
def test_a_batch_of_a_suspect_size_is_read_up_to_the_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, high: int) -> None:
    monkeypatch.setattr(segment_reader, "_LARGEST_TRUSTED_BATCH_BYTES", 150)
    written = write_log(tmp_path / "topic-0", [uniform(10, value_bytes=100)])
    wanted = LogRange(log=log_in(written.directory), low=1, high=high)
    read = attrs.evolve(READ, chunk_bytes=100, mode=ReadMode.FAILFAST)
    assert offsets_of(plan_splits([wanted], SplitLimits()), read) == list(range(1, high))
