"""Verifying a log directory: Kafka's own are clean, a flipped bit anywhere in a partition is seen, and a log whose start was
raised is healthy after any start."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.records.batch import BatchHeader, iter_batches, parse_header
from triolog.protocol.types import TopicPartition
from triolog.server.offline.findings import MAX_PLACES_NAMED, FaultTally, Finding, Severity
from triolog.server.offline.index_check import IndexFile, OffsetMatching, TimeMatching
from triolog.server.offline.repair_directory import repair_directory
from triolog.server.offline.verify import Known, PartitionSummary, check_partition, verify
from triolog.server.storage.directory.inventory import read_directory, read_partition
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.indexes.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from triolog.server.storage.log.derived_files import Facts, encode_facts
from triolog.server.storage.log.gaps import NO_FILE, OffsetGap, encode_gaps
from triolog.server.storage.log.prepare import prepare_marker
from triolog.server.storage.log.retention import increment_log_start_offset
from triolog.server.storage.producers.producer_cursor import BatchMetadata
from triolog.server.storage.producers.producer_snapshots import crc_of, decode_earlier, decode_snapshot, encode_earlier

from tests.support.compaction import end_transaction
from tests.support.counts import counts
from tests.support.crash_fs import CrashFileSystem
from tests.support.golden import GOLDEN
from tests.support.logs import START_MS, batch, open_driven
from tests.support.stopped_logs import TOPIC, Seen, StoppedLogs

FIRST: Final = "00000000000000000000"
FLIPS: Final = 1000


def verified(path: Path, *, walk: bool = True) -> Seen:
    seen = Seen()
    fs = OsFileSystem()
    verify(fs, read_directory(fs, str(path)), seen, walk=walk)
    return seen


def damages(path: Path) -> list[tuple[str, str]]:
    """(check, file name) of each damage."""
    return [(finding.check, finding.file.rpartition("/")[2]) for finding in verified(path).damages]


def damages_below(fs: CrashFileSystem, directory: str, log_start_offset: int) -> list[Finding]:
    """Damages that one partition's check finds after a clean stop, where its records begin at that offset."""
    seen, known = Seen(), Known(was_clean=True, log_start_offset=log_start_offset)
    check_partition(fs, read_partition(fs, directory), known, seen)
    return [finding for finding in seen.findings if finding.severity is Severity.DAMAGE]


def flip(path: Path, position: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def test_a_directory_of_kafka_is_clean_with_remarks_where_it_was_not_closed() -> None:
    seen = verified(GOLDEN / "clean")
    assert seen.damages == []
    assert [(remark.check, remark.reason.partition(",")[0]) for remark in seen.remarks] == [
        ("checkpoint", "names __consumer_offsets-0 and 2 more")
    ]
    seen = verified(GOLDEN / "unclean")
    assert seen.damages == []
    assert {remark.check for remark in seen.remarks} == {"clean stop", "checkpoint", "index", "time index"}
    assert all("preallocated and not closed" in each.reason for each in seen.remarks if "index" in each.check)


def test_a_log_of_ours_is_clean_whole_and_by_partition(logs: StoppedLogs) -> None:
    summaries: list[PartitionSummary] = []
    seen, fs = Seen(), OsFileSystem()
    verify(fs, read_directory(fs, str(logs.path)), seen, checked=summaries.append)
    assert seen.findings == []
    assert [partition for partition, _ in seen.begun] == [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
    assert seen.done_bytes == sum(size for _, size in seen.begun)
    for summary in summaries:
        expected = logs.records[summary.files.topic_partition]
        assert summary.log_start_offset == 0
        assert summary.log_end_offset >= expected[-1].offset + 1
        assert summary.records >= len(expected)
    alone = verified(logs.partition(1))
    assert alone.findings == []
    assert [partition for partition, _ in alone.begun] == [TopicPartition(TOPIC, 1)]


def test_an_empty_partition_and_batches_from_before_there_were_epochs_are_well(tmp_path: Path) -> None:
    directory = tmp_path / "old-0"
    directory.mkdir()
    (tmp_path / checkpoints.CLEAN_SHUTDOWN_FILE).touch()
    seen = verified(tmp_path)
    assert (seen.damages, {remark.check for remark in seen.remarks}) == ([], {"name", "topic id"})
    (tmp_path / checkpoints.CLEAN_SHUTDOWN_FILE).unlink()
    (directory / f"{FIRST}.log").write_bytes(batch(START_MS))
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    assert verified(directory).damages == []


def _flips(seed: int, directory: Path, count: int) -> list[tuple[Path, int, int]]:
    """Half of them in files chosen by their size, half in any file."""
    rng = random.Random(seed)
    files = [path for path in sorted(directory.iterdir()) if path.stat().st_size]
    sizes = [path.stat().st_size for path in files]
    chosen = [rng.choice(files) if number % 2 else rng.choices(files, sizes)[0] for number in range(count)]
    return [(path, rng.randrange(path.stat().st_size), rng.randrange(8)) for path in chosen]


def finds_every_offset(index: Path) -> bool:
    """Whether a lookup of any offset leads to a batch at or before the one that holds it.

    So does an entry that names the end of a later batch before the next entry: nothing contradicts it, no answer changes.
    """
    starts: list[int] = []
    position = 0
    with IndexFile(OsFileSystem(), str(index), OffsetIndex, int(index.stem)) as file:
        entries = list(file)
    for header, _ in iter_batches(index.with_suffix(".log").read_bytes()):
        starts.append(position)
        for offset in (header.base_offset, header.last_offset):
            found = max((entry for entry in entries if entry[0] <= offset), default=(0, 0))[1]
            if found not in starts:
                return False
        position += header.size_bytes
    return True


def differs_in_its_last_epoch(before: bytes, after: bytes) -> bool:
    """Of two leader epoch checkpoints: the last epoch has another number and starts at the same offset."""
    *lines, last = before.splitlines()
    *same, other = after.splitlines()
    return lines == same and last.split()[1:] == other.split()[1:]


@pytest.mark.merge
@pytest.mark.parametrize("name", [f"{TOPIC}-0", "txn-0", "idem-0", "times-0", "codec-zstd-0"])
def test_every_flipped_bit_in_a_partition_is_reported(written: StoppedLogs, fast_path: Path, name: str) -> None:
    """Ours, and those of Kafka; there but for what nothing else says: the topic id, for there is one partition and Kafka keeps
    topics elsewhere, and the number of the epoch that has begun at the log's end and has no record yet."""
    is_ours = name.startswith(TOPIC)
    source = written.path if is_ours else GOLDEN / "clean"
    root = Path(shutil.copytree(source, fast_path / "data", copy_function=shutil.copyfile))
    directory = root / name
    directory.chmod(0o755)
    looked_at = root if is_ours else directory
    for path, position, bit in _flips(1, directory, counts(FLIPS if is_ours else FLIPS // 2)):
        if path.name == "partition.metadata" and not is_ours:
            continue
        before = path.read_bytes()
        flip(path, position, bit)
        is_harmless = path.suffix == ".index" and finds_every_offset(path)
        is_unused = (
            not is_ours and path.name == "leader-epoch-checkpoint" and differs_in_its_last_epoch(before, path.read_bytes())
        )
        assert damages(looked_at) or is_harmless or is_unused, f"{path.name}: bit {bit} of byte {position}"
        flip(path, position, bit)
    assert damages(looked_at) == []


@pytest.mark.parametrize("walk", [True, False])
def test_a_damaged_batch_is_named_with_its_place_and_offsets(logs: StoppedLogs, walk: bool) -> None:
    """Index entries for it are remarks."""
    log = sorted(logs.partition().glob("*.log"))[1]
    flip(log, 70, 3)
    seen = verified(logs.path, walk=walk)
    (damage,) = [finding for finding in seen.damages if finding.check == "batch"]
    assert (damage.file, damage.position, damage.first_offset) == (str(log), 0, int(log.stem))
    assert damage.next_offset is not None
    assert damage.next_offset > int(log.stem)
    assert "carries CRC" in damage.reason
    flip(log, 70, 3)
    flip(log, 600, 3)
    seen = verified(logs.path)
    assert {finding.check for finding in seen.damages} == {"batch"}
    assert {finding.check for finding in seen.remarks} <= {"index", "time index"}
    assert seen.remarks


def test_a_missing_segment_in_the_middle_is_a_gap_and_a_remark_once_it_is_documented(logs: StoppedLogs) -> None:
    directory = logs.partition()
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    for path in directory.glob(f"{bases[1]:020d}.*"):
        path.unlink()
    (gap,) = [finding for finding in verified(logs.path).damages if finding.check == "gap"]
    assert (gap.first_offset, gap.next_offset) == (bases[1], bases[2])
    assert "a segment file is missing" in gap.reason
    (directory / "quarantine-checkpoint").write_bytes(encode_gaps([OffsetGap(bases[1], bases[2], NO_FILE)]))
    seen = verified(directory)
    assert [finding.check for finding in seen.damages if finding.check == "gap"] == []
    assert "quarantine" in {finding.check for finding in seen.remarks}


def test_a_gap_below_the_log_start_is_no_damage_because_a_server_forgets_it(logs: StoppedLogs) -> None:
    """The rest of its segment may stay for long."""
    bases = sorted(int(path.stem) for path in logs.partition().glob("*.log"))
    for path in logs.partition().glob(f"{bases[1]:020d}.*"):
        path.unlink()
    for start, first in ((bases[1] + 1, [bases[1] + 1]), (bases[2], [])):
        offsets = checkpoints.encode_offsets({TopicPartition(TOPIC, 0): start})
        (logs.path / checkpoints.LOG_START_FILE).write_bytes(offsets)
        assert [found.first_offset for found in verified(logs.path).damages if found.check == "gap"] == first


def test_a_segment_of_another_partition_overlaps(logs: StoppedLogs) -> None:
    first = logs.partition() / f"{FIRST}.log"
    second = sorted(logs.partition().glob("*.log"))[1]
    shutil.copyfile(first, second)
    assert ("batch", second.name) in damages(logs.path)


@pytest.mark.parametrize(
    ("suffix", "check"), [(".index", "index"), (".timeindex", "time index"), (".txnindex", "transaction index")]
)
def test_a_missing_index_of_a_closed_segment_is_damage(logs: StoppedLogs, suffix: str, check: str) -> None:
    path = sorted(logs.partition().glob(f"*{suffix}"))[0]
    path.unlink()
    assert damages(logs.path) == [(check, path.name)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot", ".batches"])
def test_a_file_of_zeros_is_damage(logs: StoppedLogs, suffix: str) -> None:
    path = sorted(path for path in logs.partition().glob(f"*{suffix}") if path.stat().st_size > 24)[0]
    path.write_bytes(bytes(path.stat().st_size))
    assert path.name in {name for _, name in damages(logs.path)}


def rewritten(path: Path, changed: Callable[[BatchMetadata], BatchMetadata]) -> None:
    """Let every batch beside a snapshot be another, as a file that belongs to that snapshot."""
    snapshot = path.with_suffix(".snapshot").read_bytes()
    _, earlier = decode_earlier(str(path), path.read_bytes())
    newest = decode_snapshot(str(path), snapshot)
    entries = [
        entry._replace(batches=(*map(changed, earlier.get(entry.producer_id, ())), *entry.batches[-1:])) for entry in newest
    ]
    path.write_bytes(encode_earlier(entries, crc_of(snapshot)))


def test_earlier_batches_that_the_log_has_elsewhere_are_damage_and_repaired(logs: StoppedLogs) -> None:
    """Those that are gone from the log are none: compaction has taken them."""
    path, far = sorted(logs.partition().glob("*.batches"))[-1], 10**6
    whole = path.read_bytes()
    before = decode_earlier(str(path), whole)[1]
    assert before
    rewritten(path, lambda batch: batch._replace(last_sequence=batch.last_sequence - far, last_offset=batch.last_offset - far))
    assert damages(logs.path) == []
    path.write_bytes(whole)
    rewritten(path, lambda batch: batch._replace(last_sequence=batch.last_sequence + 1))
    (damage,) = verified(logs.path).damages
    assert (damage.check, damage.file) == ("snapshot", str(path))
    assert "does not match the log" in damage.reason
    fs = OsFileSystem()
    repair_directory(fs, read_directory(fs, str(logs.path)), Seen(), dry_run=False, acted=lambda _: None)
    assert damages(logs.path) == []
    assert decode_earlier(str(path), path.read_bytes())[1] == before


def test_earlier_batches_have_the_time_of_their_producer_when_a_restart_came_between(tmp_path: Path) -> None:
    """A snapshot has one time for a producer, that of its last marker."""
    driven = open_driven(tmp_path / "topic-0")
    for number in range(3):
        driven.append(batch(START_MS, producer_id=1, producer_epoch=0, base_sequence=number, is_transactional=True))
        marker = prepare_marker(producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=START_MS + 5)
        driven.append_group([marker])
        driven.close()
        driven = driven.reopen(was_clean=True, recovery_point=driven.log.log_end_offset)
        driven.roll()
    driven.close()
    assert [name for _, name in damages(tmp_path / "topic-0")] == []


def test_a_log_start_offset_that_only_the_partition_knows_is_a_remark(logs: StoppedLogs) -> None:
    path = logs.partition() / "derived.json"
    first = min(int(log.stem) for log in logs.partition().glob("*.log"))
    path.write_bytes(encode_facts(Facts(first + 3, {})))
    seen = verified(logs.path)
    assert seen.damages == []
    assert [finding.file for finding in seen.remarks if "records the log start offset" in finding.reason] == [str(path)]


def test_names_that_do_not_belong_there_are_damage_or_remarks(logs: StoppedLogs) -> None:
    """What a crash left over, batches without a snapshot and a foreign file are nothing but remarks."""
    leftovers = [f"{FIRST}.{suffix}" for suffix in ("log.deleted", "log.cleaned", "log.swap", "index.tmp")]
    remarks = [*leftovers, f"{7:020}.batches", "notes.txt"]
    damages = ["7.log", "00000000000000099999.index"]
    for name in (*remarks, *damages):
        (logs.partition() / name).write_bytes(b"" if name.endswith("index") else b"left")
    (logs.path / "holiday pictures").mkdir()
    seen = verified(logs.path)
    assert {Path(remark.file).name for remark in seen.remarks} == set(remarks)
    assert {Path(finding.file).name for finding in seen.damages} == {*damages, "holiday pictures"}
    assert [remark.check for remark in seen.remarks].count("leftover") == len(remarks) - 1


def test_a_snapshot_behind_the_log_or_of_another_offset_is_damage(logs: StoppedLogs) -> None:
    first, *_, last = sorted(logs.partition().glob("*.snapshot"))
    behind = last.with_name(f"{10**9:020d}.snapshot")
    shutil.copyfile(last, behind)
    assert damages(logs.path) == [("snapshot", behind.name)]
    shutil.copyfile(last, first)
    assert ("snapshot", first.name) in damages(logs.path)


def test_a_snapshot_below_the_first_segment_is_damage_only_if_a_start_may_read_it(logs: StoppedLogs) -> None:
    """A start wrote it in the middle of a segment that retention has taken; the next start deletes it."""
    for path in logs.partition().glob(f"{FIRST}.*"):
        path.unlink()
    last = sorted(logs.partition().glob("*.snapshot"))[-1]
    below = last.with_name("00000000000000000001.snapshot")
    shutil.copyfile(last, below)
    assert ("snapshot", below.name) not in damages(logs.path)
    flip(below, 8, 0)
    assert ("snapshot", below.name) not in damages(logs.path)
    [remark] = [finding for finding in verified(logs.path).remarks if finding.file == str(below)]
    assert "the next start removes it" in remark.reason
    for path in logs.partition().glob("*.snapshot"):
        if path != below:
            path.unlink()
    assert ("snapshot", below.name) in damages(logs.path)


@pytest.mark.parametrize("name", [checkpoints.RECOVERY_POINT_FILE, checkpoints.HIGH_WATERMARK_FILE])
def test_a_checkpoint_behind_the_log_is_damage(logs: StoppedLogs, name: str) -> None:
    (logs.path / name).write_bytes(checkpoints.encode_offsets({TopicPartition(TOPIC, 0): 10**6, TopicPartition(TOPIC, 1): 0}))
    (damage,) = verified(logs.path).damages
    assert damage.file == str(logs.partition())
    assert "1000000, the log ends at" in damage.reason


def test_a_partition_of_another_topic_of_the_name_is_damage(logs: StoppedLogs) -> None:
    """Without topics.json the partitions of a topic are compared with each other."""
    metadata = logs.partition(1) / "partition.metadata"
    good = metadata.read_bytes()
    for _ in range(2):
        metadata.write_bytes(checkpoints.encode_partition_metadata(checkpoints.random_uuid()))
        assert damages(logs.path) == [("topic id", "partition.metadata")]
        metadata.write_bytes(good)
        (logs.path / "topics.json").unlink(missing_ok=True)
        assert damages(logs.path) == []


@pytest.mark.parametrize("name", ["topics.json", "meta.properties", "producer-id-block", checkpoints.RECOVERY_POINT_FILE])
def test_an_unreadable_file_of_the_directory_is_damage(logs: StoppedLogs, name: str) -> None:
    (logs.path / name).write_bytes(b"version=9\n")
    assert damages(logs.path)[0][1] == name


def test_zeros_behind_the_log_are_a_remark_only_where_it_was_not_closed(logs: StoppedLogs) -> None:
    log = sorted(logs.partition().glob("*.log"))[-1]
    log.write_bytes(log.read_bytes() + bytes(5000))
    assert ("batch", log.name) in damages(logs.path)
    (logs.path / checkpoints.CLEAN_SHUTDOWN_FILE).unlink()
    seen = verified(logs.path)
    assert seen.damages == []
    (zeros,) = [remark for remark in seen.remarks if remark.check == "preallocated"]
    assert zeros.size == 5000


SIZE = 100


def header(base_offset: int, records: int = 2, timestamp: int = 0) -> BatchHeader:
    made = parse_header(batch(*[timestamp] * records))
    return made._replace(base_offset=base_offset, last_offset_delta=records - 1, max_timestamp=timestamp)


HEADERS = [header(2 * number, timestamp=[5, 3, 9, 9, 12][number]) for number in range(5)]
"""Last offsets 1, 3, 5, 7, 9 at positions 0, 100, ..., 400."""


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
    """How many entries are wrong, and how many are out of order."""
    matching = OffsetMatching(iter(entries))
    for number, each in enumerate(HEADERS):
        if number * SIZE >= matching.due:
            matching.visit(each, number * SIZE)
    matching.finish()
    assert (matching.failures.count, matching.order.count) == expected


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
    matching = TimeMatching(iter(entries))
    for each in HEADERS:
        matching.visit(each)
    matching.finish()
    assert (matching.failures.count, matching.order.count, matching.closing_failure is None) == expected


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


def test_places_name_the_first_and_count_the_rest() -> None:
    places = FaultTally()
    assert places.text is None
    for number in range(MAX_PLACES_NAMED + 2):
        places.add(f"place {number}")
    assert places.text == "place 0; place 1; place 2, and 2 more"


@pytest.mark.parametrize(("log_start_offset", "is_needed"), [(0, True), (1, True), (2, False)])
def test_an_index_that_lacks_a_transaction_with_records_left_is_damaged(log_start_offset: int, is_needed: bool) -> None:
    fs = CrashFileSystem()
    driven = open_driven("/topic-0", fs=fs)
    for sequence in range(2):
        driven.append(batch(producer_id=1, producer_epoch=0, base_sequence=sequence, is_transactional=True))
    end_transaction(driven, 1, commit=False)
    driven.run(increment_log_start_offset(driven.log, log_start_offset))
    driven.close()
    assert damages_below(fs, "/topic-0", log_start_offset) == []
    fs.unlink(f"/topic-0/{FIRST}.txnindex")
    found = [finding.reason for finding in damages_below(fs, "/topic-0", log_start_offset)]
    assert any("lacks entries that the log has: producer 1 aborted 0 to 2" in reason for reason in found) == is_needed, found
