"""Lookups by time, indexes and markers of transactions, whole and damaged, as a read of segment files sees them."""

from __future__ import annotations

import logging
import shutil
import struct
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import TopicPartition
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE, encode_offsets
from triolog.server.storage.errors import LogDirectoryError
from triolog.server.storage.indexes.transaction_index import AbortedTxn, encode_entry
from triolog.tools.segments.segment_damage import DamagedSegmentError, ReadMode
from triolog.tools.segments.segment_index import read_offset_index, read_offset_tail, read_time_index, read_time_tail
from triolog.tools.segments.segment_log import read_logs
from triolog.tools.segments.segment_reader import SegmentRead
from triolog.tools.segments.segment_times import first_offset_at
from triolog.tools.segments.segment_transactions import last_stable_offset
from triolog.tools.segments.splits import LogRange, SegmentSplit, SplitLimits, pack_splits, plan_splits

from tests.support.golden import GOLDEN
from tests.support.record_batches import with_records
from tests.support.segment_files import SPOILS, START_MS, DrawnBatch, WrittenLog, batch_starts, drawn_batches, spoil, write_log
from tests.tools.segments.test_segment_reader import READ, TransactionLog, log_in, offsets_of, overwrite, splits_of, uniform


@given(
    segments=st.lists(drawn_batches(), min_size=1, max_size=3),
    index_interval_bytes=st.sampled_from((0, 100, 500)),
    spoils=st.lists(st.tuples(st.sampled_from(SPOILS), st.sampled_from(SPOILS)), min_size=3, max_size=3),
    noise=st.binary(max_size=48),
    log_start_offset=st.integers(0, 12),
)
def test_a_time_is_found_where_looking_at_every_record_finds_it(
    tmp_path_factory: pytest.TempPathFactory,
    segments: list[list[DrawnBatch]],
    index_interval_bytes: int,
    spoils: list[tuple[str, str]],
    noise: bytes,
    log_start_offset: int,
) -> None:
    root = tmp_path_factory.mktemp("log")
    written = write_log(root / "topic-0", segments, index_interval_bytes=index_interval_bytes)
    for log_path, (of_offsets, of_times) in zip(sorted(written.directory.glob("*.log")), spoils, strict=False):
        spoil(log_path.with_suffix(".index"), of_offsets, noise)
        spoil(log_path.with_suffix(".timeindex"), of_times, noise)
    (root / "log-start-offset-checkpoint").write_bytes(f"0\n1\ntopic 0 {log_start_offset}\n".encode())
    log = log_in(root)
    for time in range(-1, 42):
        expected = next(
            (each.offset for each in written.records if each.offset >= log_start_offset and each.timestamp >= START_MS + time),
            None,
        )
        assert first_offset_at(log, START_MS + time) == expected, f"asked for {time}"
    shutil.rmtree(root)


def ordered(batches: int) -> list[DrawnBatch]:
    return [DrawnBatch(times=(10 * slot, 10 * slot + 5), value_bytes=100) for slot in range(batches)]


@pytest.mark.parametrize("points", [{TopicPartition("topic", 0): 20}, {}, None], ids=["below", "not there", "no file"])
def test_an_unfinished_index_is_not_the_whole_segment(tmp_path: Path, points: dict[TopicPartition, int] | None) -> None:
    written = write_log(tmp_path / "topic-0", [ordered(40), ordered(3)], index_interval_bytes=300)
    closed = min(written.directory.glob("*.timeindex"))
    closed.write_bytes(closed.read_bytes()[: 12 * 3])
    written_time = START_MS + 390
    if points is not None:
        (tmp_path / RECOVERY_POINT_FILE).write_bytes(encode_offsets(points))
    assert first_offset_at(log_in(tmp_path), written_time) == 78


def test_a_lookup_reads_a_few_batches_only(tmp_path: Path) -> None:
    """Everything but the neighbourhood of the answer may be unreadable."""
    written = write_log(tmp_path / "topic-0", [ordered(400)], index_interval_bytes=500)
    log = log_in(tmp_path)
    with written.log_path.open("r+b") as file:
        size = written.batches[1][1]
        file.write(bytes(150 * size))
        file.seek(250 * size)
        file.write(bytes(100 * size))
    assert first_offset_at(log, START_MS + 2005, ReadMode.FAILFAST) == 401


def test_damage_before_the_answer_is_passed_over_or_refused(tmp_path: Path) -> None:
    written = write_log(tmp_path / "topic-0", [ordered(20)], index_interval_bytes=1 << 20)
    size = written.batches[1][1]
    log = log_in(tmp_path)
    with written.log_path.open("r+b") as file:
        file.seek(5 * size)
        file.write(bytes(size))
    assert first_offset_at(log, START_MS + 50) == 12
    with pytest.raises(DamagedSegmentError, match=f"{written.log_path}: position {5 * size}: zeros"):
        first_offset_at(log, START_MS + 50, ReadMode.FAILFAST)


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
        ([(5, 100)], b"\x00\x00", "10 bytes, not a multiple of its entries"),
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


PARTITION: Final = TopicPartition("topic", 0)


def written_to(directory: Path, *segments: list[bytes]) -> WrittenLog:
    written = WrittenLog(directory)
    for batches in segments:
        written.append_segment(batches)
    return written


@pytest.mark.parametrize("at", [61, 66, 70])
def test_a_damaged_marker_leaves_its_transaction_open(tmp_path: Path, at: int, caplog: pytest.LogCaptureFixture) -> None:
    log = TransactionLog()
    log.add()
    log.add(1)
    log.end(1, commit=True)
    log.add()
    written = written_to(tmp_path / "topic-0", log.batches)
    overwrite(written, 2, b"\xff\xff", at=at)
    with caplog.at_level(logging.WARNING):
        found = log_in(written.directory)
        assert last_stable_offset(found) == 2
    assert "position 182: batch at offset 4 carries CRC" in caplog.text
    assert offsets_of(splits_of(found, committed=True)) == [0, 1]


def test_a_marker_that_is_no_record_leaves_its_transaction_open(tmp_path: Path) -> None:
    log = TransactionLog()
    log.add(1)
    marker, _ = with_records(b"\x02\x00", count=1, base_offset=2, attributes=0x30, producer_id=1, producer_epoch=0)
    log.batches.append(marker)
    found = log_in(written_to(tmp_path / "topic-0", log.batches).directory)
    assert last_stable_offset(found) == 0


def test_a_damaged_batch_begins_no_transaction(tmp_path: Path) -> None:
    """It would stay open, and hide everything behind it."""
    log = TransactionLog()
    for _ in range(4):
        log.add()
    written = written_to(tmp_path / "topic-0", log.batches)
    overwrite(written, 1, b"\x10", at=22)
    overwrite(written, 1, bytes(8), at=43)
    assert offsets_of(splits_of(log_in(written.directory), committed=True)) == [0, 1, 4, 5, 6, 7]


def test_a_damaged_marker_does_not_decide_what_was_aborted(tmp_path: Path) -> None:
    """Type 0 is ABORT, 1 is COMMIT; the segment has no transaction index."""
    log = TransactionLog()
    log.add(1)
    log.end(1, commit=True)
    log.add(1)
    log.end(1, commit=True)
    written = written_to(tmp_path / "topic-0", log.batches[:1], log.batches[1:])
    position = log.batches[1].index(b"\x00\x00\x00\x01", 61) + 3
    overwrite(written, 1, b"\x00", at=position)
    assert offsets_of(splits_of(log_in(written.directory), committed=True), attrs.evolve(READ)) == [0, 1, 3, 4]


@pytest.mark.parametrize("points", [None, {}, {PARTITION: 2}])
def test_no_index_behind_the_recovery_point_counts(tmp_path: Path, points: dict[TopicPartition, int] | None) -> None:
    """A partition that the checkpoint does not have was never synced as far as anybody knows."""
    log = TransactionLog()
    log.add(1)
    log.end(1, commit=False)
    log.add(2)
    log.end(2, commit=False)
    log.add()
    written = written_to(tmp_path / "topic-0", log.batches[:4], log.batches[4:])
    first = AbortedTxn(producer_id=1, first_offset=0, last_offset=2, last_stable_offset=3)
    for path, entries in zip(sorted(written.directory.glob("*.log")), (encode_entry(first), b""), strict=True):
        path.with_suffix(".txnindex").write_bytes(entries)
    if points is not None:
        (tmp_path / RECOVERY_POINT_FILE).write_bytes(encode_offsets(points))
    assert offsets_of(splits_of(log_in(tmp_path), committed=True)) == [6, 7]


def test_after_a_clean_stop_indexes_are_believed(tmp_path: Path) -> None:
    log = TransactionLog()
    log.add()
    written_to(tmp_path / "topic-0", log.batches)
    (tmp_path / CLEAN_SHUTDOWN_FILE).write_bytes(b"")
    assert log_in(tmp_path).trusted_offset == 2**63 - 1


def test_a_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    log = TransactionLog()
    log.add()
    (tmp_path / "one").mkdir()
    written_to(tmp_path / "one" / "topic-0", log.batches)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with pytest.raises(LogDirectoryError, match=r"topic-0 is in .*one/topic-0 and in .*two/topic-0"):
        read_logs([str(tmp_path / "one"), str(tmp_path / "two")])


STRICT: Final = SegmentRead(columns=("offset",), mode=ReadMode.FAILFAST, chunk_bytes=700)


def read_offsets(splits: list[SegmentSplit]) -> list[int]:
    return offsets_of(splits, STRICT)


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
