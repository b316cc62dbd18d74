"""Rounds of cleaning over whole logs, the map of keys that a round makes, and which segments it writes together."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import CorruptRecordError
from triolog.protocol.limits import INT32_MAX, MIB
from triolog.protocol.records.batch import RECORD_BATCH_OVERHEAD, iter_batches
from triolog.protocol.types import Bytes, CompressionType, Isolation
from triolog.server.config import LogConfig
from triolog.server.offline.compact_directory import compact
from triolog.server.storage.cleaner.batch_filter import ENTRY_BYTES, OffsetMap
from triolog.server.storage.cleaner.clean import SYNC_BYTES, CleaningError, build_offset_map, clean, group_segments
from triolog.server.storage.cleaner.job import CleaningJob, SourceSegment
from triolog.server.storage.cleaner.selection import LogToClean, plan_round
from triolog.server.storage.cleaner.swap import replace_group
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.indexes.index import OffsetIndex
from triolog.server.storage.indexes.transaction_index import decode_entries
from triolog.server.storage.lookups import fetch
from triolog.server.storage.producers.producer_state import ProducerState

from tests.support import compaction
from tests.support.compaction import MAP_BYTES, end_transaction, keyed_batch, last_offsets, offsets, put, put_all, stored
from tests.support.logs import START_MS, DrivenLog, open_driven

ONE_KEY_MAP = {"map_bytes": 72, "map_load_factor": 0.5}
"""Three slots, of which one may be taken."""


def log_of(directory: Path, **config: Any) -> DrivenLog:
    settings: dict[str, Any] = {"cleanup_policy": ("compact",), "delete_retention_ms": 1000, "index_interval_bytes": 100}
    return open_driven(directory, config=LogConfig(**(settings | config)))


def transactional(producer_id: int, sequence: int = 0, epoch: int = 0) -> dict[str, Any]:
    return {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence, "is_transactional": True}


def idempotent(producer_id: int, sequence: int = 0) -> dict[str, Any]:
    return {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}


def job_for(driven: DrivenLog, first_dirty: int, **changes: Any) -> CleaningJob:
    driven.roll()
    driven.flush()
    chosen = LogToClean(
        first_dirty_offset=first_dirty, end_offset=driven.log.active.base_offset, clean_bytes=0, cleanable_bytes=0
    )
    job = plan_round(driven.log, chosen, driven.clock(), map_bytes=MAP_BYTES)
    return attrs.evolve(job, **changes)


def keys(driven: DrivenLog) -> list[str]:
    return [key for _, key, _ in stored(driven)]


def aborted(driven: DrivenLog) -> set[tuple[int, int]]:
    """(producer id, first offset) of all that a read-committed consumer is told was aborted."""
    snapshot = driven.log.snapshot()
    offset, found = snapshot.log_start_offset, set()
    while offset < snapshot.last_stable_offset:
        reading = fetch.fetch_batches(snapshot, offset, 1 << 20, min_one_batch=True, isolation=Isolation.READ_COMMITTED)
        answer = driven.run(reading)
        found |= {(txn.producer_id, txn.first_offset) for txn in answer.aborted or ()}
        *_, (last, _) = iter_batches(answer.records)
        offset = last.next_offset
    return found


def test_records_of_keys_that_the_map_has_at_later_offsets_go(tmp_path: Path) -> None:
    """Kafka: LogCleanerTest.testCleanSegments: exactly keys 1, 3, 5, 7, 9 go; all bytes of the segments are read."""
    driven = log_of(tmp_path, segment_bytes=400)
    for number in range(20):
        put(driven, number, number)
    sources = driven.log.size_in_bytes
    for number in (1, 3, 5, 7, 9):
        put(driven, number, "later")
    done = compaction.clean(driven)
    assert keys(driven)[:15] == [str(number) for number in range(20) if number not in (1, 3, 5, 7, 9)]
    assert done.result.bytes_read >= sources
    assert sum(group.bytes_read for group in done.groups) < done.result.bytes_read


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[DrivenLog]:
    driven = log_of(tmp_path)
    yield driven
    driven.log.drop_maps()


@pytest.mark.parametrize(("first_dirty", "kept"), [(2, [1, 2, 3, 4]), (3, [2, 3, 4]), (4, [3, 4])])
def test_a_full_map_ends_the_round_where_it_is(driven: DrivenLog, first_dirty: int, kept: list[int]) -> None:
    """Kafka: LogCleanerTest.testPartialSegmentClean."""
    for number in (0, 1, 0, 1, 0):
        put(driven, number, "value")
    for dirty in range(2, first_dirty + 1):
        job = job_for(driven, dirty, **ONE_KEY_MAP)
        truncations = driven.log.truncations
        for group in clean(driven.fs, job):
            if group.cleaned is not None:
                truncations = driven.run(replace_group(driven.log, job, group, truncations))
    assert offsets(driven) == kept


def test_a_map_that_does_not_hold_one_batch_is_an_error_with_the_way_out(tmp_path: Path, driven: DrivenLog) -> None:
    put_all(driven, [(number, number) for number in range(10)])
    with pytest.raises(CleaningError, match="Raise cleaner_dedupe_buffer_bytes"):
        compaction.clean(driven, map_bytes=72)
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".cleaned")] == []
    assert len(offsets(driven)) == 10


def test_the_map_has_exactly_the_keys_of_its_range(tmp_path: Path) -> None:
    """Kafka: LogCleanerTest.testBuildOffsetMap."""
    driven = log_of(tmp_path, segment_bytes=500)
    for number in range(100):
        put(driven, number, number)
    job = job_for(driven, 0)
    bounds = compaction.bases(driven.log)
    for start, stop in ((0, bounds[3]), (bounds[2], bounds[5]), (37, bounds[-1]), (0, bounds[-1])):
        built = build_offset_map(driven.fs, attrs.evolve(job, first_dirty_offset=start, end_offset=stop), lambda size: None)
        assert built.latest_offset + 1 == stop
        assert built.entries == stop - start
        for number in range(100):
            assert built.get(str(number).encode()) == (number if start <= number < stop else -1)


def test_no_key_with_a_tombstone_survives_its_horizon(tmp_path: Path) -> None:
    """Kafka: LogCleanerTest.testCleaningWithDeletes."""
    driven = log_of(tmp_path, segment_bytes=400)
    for number in range(20):
        put(driven, number, number)
    for number in range(0, 20, 2):
        put(driven, number, None)
    checkpoint = compaction.clean(driven).result.next_dirty_offset
    assert sorted(keys(driven), key=int) == [str(number) for number in range(20)]
    driven.clock.advance(1000)
    put(driven, 99, "so that there is something dirty")
    compaction.clean(driven, checkpoint)
    assert set(keys(driven)) == {str(number) for number in range(1, 20, 2)} | {"99"}


def test_the_last_sequence_of_a_producer_outlives_its_records(driven: DrivenLog) -> None:
    """Kafka: LogCleanerTest.testLogCleanerRetainsProducerLastSequence: batches 1, 3 and 4 remain."""
    put_all(driven, [(0, 0)])
    put_all(driven, [(0, 1)], **idempotent(1, 0))
    put_all(driven, [(0, 2)], **idempotent(2, 0))
    put_all(driven, [(0, 3)], **idempotent(3, 0))
    put_all(driven, [(1, 4)], **idempotent(2, 1))
    before = {producer_id: entry.last_sequence for producer_id, entry in driven.log.producers.entries.items()}
    compaction.clean(driven)
    assert stored(driven) == [(3, "0", "3"), (4, "1", "4")]
    assert last_offsets(driven) == [1, 3, 4]
    replayed = ProducerState()
    for header, batch in compaction.raw_batches(driven):
        replayed.replay(header, batch)
    assert {producer_id: entry.last_sequence for producer_id, entry in replayed.entries.items()} == before


def test_an_aborted_producer_keeps_its_last_sequence_until_it_writes_again(driven: DrivenLog) -> None:
    """Kafka: LogCleanerTest.testLogCleanerRetainsLastSequenceEvenIfTransactionAborted."""
    put_all(driven, [(1, 1)], **transactional(9, 0))
    put_all(driven, [(2, 2), (3, 3)], **transactional(9, 1))
    end_transaction(driven, 9, commit=False)
    checkpoint = compaction.clean(driven).result.next_dirty_offset
    assert last_offsets(driven) == [2, 3]
    assert offsets(driven) == [3]
    put_all(driven, [(1, 5), (2, 6)], **transactional(9, 3))
    end_transaction(driven, 9, commit=True)
    compaction.clean(driven, checkpoint)
    assert last_offsets(driven) == [3, 5, 6]


def put_unsynced(driven: DrivenLog, count: int, sequence: int) -> None:
    """All so far is on the device; then so many batches of producer 1 that a power cut takes."""
    driven.roll()
    driven.flush()
    for number in range(count):
        put(driven, f"unsynced {number}", "value", **idempotent(1, sequence + number))


def known_after_power_cut(driven: DrivenLog) -> dict[int, int]:
    """Last sequences of the producers whose batches lie below the recovery point, as a replay finds them."""
    replayed = ProducerState()
    for header, batch in compaction.raw_batches(driven):
        if header.next_offset <= driven.log.recovery_point:
            replayed.replay(header, batch)
    return {producer_id: entry.last_sequence for producer_id, entry in replayed.entries.items()}


@pytest.mark.parametrize("unsynced", [1, 4, 5, 9])
def test_the_newest_batch_of_a_producer_that_no_power_cut_takes_stays_too(driven: DrivenLog, unsynced: int) -> None:
    put(driven, "a", "old", **idempotent(1, 0))
    put(driven, "b", "old", **idempotent(1, 1))
    put_all(driven, [("a", "new"), ("b", "new")])
    put_unsynced(driven, unsynced, 2)
    compaction.clean_synced(driven)
    assert last_offsets(driven)[:2] == [1, 3]
    assert known_after_power_cut(driven) == {1: 1}


@pytest.mark.parametrize("unsynced", [1, 9])
def test_it_stays_in_the_part_that_was_clean_before(driven: DrivenLog, unsynced: int) -> None:
    put(driven, "a", "old", **idempotent(1, 0))
    put(driven, "b", "old", **idempotent(1, 1))
    checkpoint = compaction.clean(driven).result.next_dirty_offset
    put_all(driven, [("a", "new"), ("b", "new")])
    put_unsynced(driven, unsynced, 2)
    checkpoint = compaction.clean_synced(driven, checkpoint).result.next_dirty_offset
    assert known_after_power_cut(driven) == {1: 1}
    put(driven, "c", "c")
    compaction.clean(driven, checkpoint)
    assert [offset for offset in last_offsets(driven) if offset < 3] == [], "the later ones are on the device now"


def test_an_older_batch_goes_when_a_newer_one_of_its_producer_is_in_the_dirty_part(driven: DrivenLog) -> None:
    put(driven, "a", "old", **idempotent(1, 0))
    checkpoint = compaction.clean(driven).result.next_dirty_offset
    put(driven, "b", "old", **idempotent(1, 1))
    put_all(driven, [("a", "new"), ("b", "new")])
    put_unsynced(driven, 9, 2)
    compaction.clean_synced(driven, checkpoint)
    assert last_offsets(driven)[:2] == [1, 3]


def test_batches_of_an_older_epoch_outlive_a_marker_that_a_power_cut_takes(driven: DrivenLog) -> None:
    """A marker of a new epoch lets the log forget the batches of the old one, while it is not on the device itself."""
    put(driven, "a", "old", **transactional(1, 0))
    end_transaction(driven, 1, commit=True)
    put(driven, "a", "new")
    put_unsynced(driven, 0, 0)
    put(driven, "c", "open", **transactional(1, 1))
    end_transaction(driven, 1, commit=False, epoch=1)
    assert driven.log.producers.entries[1].batches == ()
    compaction.clean_synced(driven)
    assert known_after_power_cut(driven) == {1: 0}


def test_aborted_records_vanish_and_what_is_reported_stays_right(tmp_path: Path) -> None:
    """Kafka: LogCleanerTest.testBasicTransactionAwareCleaning."""
    driven = log_of(tmp_path, segment_bytes=2048)
    put_all(driven, [(1, 1)], **transactional(1, 0))
    put_all(driven, [(2, 2)], **transactional(2, 0))
    put_all(driven, [(2, 3)], **transactional(2, 1))
    put_all(driven, [(3, 4)], **transactional(1, 1))
    end_transaction(driven, 1, commit=False)
    end_transaction(driven, 2, commit=True)
    put_all(driven, [(2, 6)], **transactional(1, 2))
    end_transaction(driven, 1, commit=False)
    put_all(driven, [(4, 8)])
    before = aborted(driven)
    assert before == {(1, 0), (1, 6)}
    compaction.clean(driven)
    assert stored(driven) == [(2, "2", "3"), (8, "4", "8")]
    assert offsets(driven) == [2, 4, 5, 7, 8]
    assert aborted(driven) == before
    first = driven.log.segments.first
    content = Path(first.transaction_index.path).read_bytes()
    assert [txn[:3] for txn in decode_entries("", content)] == [(1, 0, 4), (1, 6, 7)]
    assert driven.run(first.view().aborted_transactions()) == decode_entries("", content)


def test_a_commit_marker_goes_once_its_records_are_gone_and_its_time_has_come(driven: DrivenLog) -> None:
    """Kafka: LogCleanerTest.testCommitMarkerRemoval."""
    put_all(driven, [(1, 1)], **transactional(1, 0))
    put_all(driven, [(2, 2)], **transactional(1, 1))
    end_transaction(driven, 1, commit=True)
    put_all(driven, [(1, 3)], **transactional(1, 2))
    end_transaction(driven, 1, commit=True)
    checkpoint = compaction.clean(driven).result.next_dirty_offset
    assert offsets(driven) == [1, 2, 3, 4]
    put_all(driven, [(2, 5)], **transactional(1, 3))
    end_transaction(driven, 1, commit=True)
    for advance_ms, expected in ((0, [2, 3, 4, 5, 6]), (1, [2, 3, 4, 5, 6, 7]), (1000, [3, 4, 5, 6, 8])):
        driven.clock.advance(advance_ms)
        checkpoint = compaction.clean(driven, checkpoint).result.next_dirty_offset
        assert offsets(driven) == expected
        put(driven, "other", "something dirty")


@pytest.mark.parametrize("rolls", [False, True])
def test_an_aborted_record_does_not_replace_a_committed_one(driven: DrivenLog, rolls: bool) -> None:
    """Also where its marker is in the active segment."""
    put(driven, 1, "committed")
    put_all(driven, [(1, "aborted")], **transactional(1, 0))
    if rolls:
        driven.roll()
    end_transaction(driven, 1, commit=False)
    if not rolls:
        driven.roll()
    driven.flush()
    assert compact(driven.fs, driven.log, None, map_bytes=MAP_BYTES) is not None
    driven.close_files()
    assert stored(driven) == [(0, "1", "committed")]
    assert last_offsets(driven) == [0, 1, 2]


def test_undecided_records_are_not_cleaned(driven: DrivenLog) -> None:
    """Kafka: LogCleanerManagerTest.testUndecidedTransactionalDataNotCleanable."""
    put(driven, 1, "old")
    driven.roll()
    put_all(driven, [(1, "open")], **transactional(1, 0))
    done = compaction.clean(driven)
    assert done.chosen.end_offset == 1
    assert [record[0] for record in stored(driven)] == [0, 1]


def test_the_end_of_the_range_is_kept_when_all_is_superseded(driven: DrivenLog) -> None:
    """Kafka: LogCleanerTest.testCleanSegmentsRetainingLastEmptyBatch."""
    put_all(driven, [(1, 1)], **transactional(1, 0))
    end_transaction(driven, 1, commit=False)
    put_all(driven, [(2, 2), (3, 3)], **transactional(2, 0))
    driven.roll()
    end_transaction(driven, 2, commit=False)
    driven.log.producers.entries.clear()
    compaction.clean(driven)
    assert stored(driven) == []
    reopened = driven.reopen(was_clean=False, recovery_point=0)
    assert reopened.log.log_end_offset == 5


@pytest.mark.parametrize("codec", CompressionType)
def test_a_batch_above_what_the_topic_allows_now_is_cleaned(tmp_path: Path, codec: CompressionType) -> None:
    """Kafka: LogCleanerTest.testLargeMessage, testMessageLargerThanMaxMessageSize."""
    noise = random.Random(1).randbytes(3 << 20)
    driven = log_of(tmp_path, max_message_bytes=8 << 20)
    driven.append(keyed_batch([("large", noise), ("small", b"1")], compression_type=codec))
    driven.append(keyed_batch([("small", b"2")], compression_type=codec))
    driven.log.config = attrs.evolve(driven.log.config, max_message_bytes=100)
    compaction.clean(driven)
    assert [(offset, key) for _, records in compaction.batches(driven) for offset, key, _ in records] == [
        (0, b"large"),
        (2, b"small"),
    ]


def test_cleaned_files_are_as_long_as_their_content(tmp_path: Path) -> None:
    """Kafka: LogCleanerTest.testSizeTrimmedForPreallocatedAndCompactedTopic."""
    driven = log_of(tmp_path, preallocate=True, segment_bytes=4096)
    for number in range(20):
        put(driven, number % 3, number)
    compaction.clean(driven)
    first = driven.log.segments.first
    assert Path(first.log.path).stat().st_size == first.size < 4096
    assert Path(first.offset_index.path).stat().st_size == first.offset_index.size_in_bytes
    assert Path(first.time_index.path).stat().st_size == first.time_index.size_in_bytes


def test_a_segment_that_stays_as_it_is_is_not_written(tmp_path: Path, driven: DrivenLog) -> None:
    for number in range(20):
        put(driven, number, number)
    done = compaction.clean(driven)
    assert [group.cleaned for group in done.groups] == [None]
    assert done.result.bytes_written == 0
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.suffix in (".cleaned", ".deleted")) == []


def test_a_cleaned_log_is_as_old_as_the_newest_that_it_replaces(tmp_path: Path) -> None:
    """Kafka: Cleaner.cleanSegments; retention goes by it where records have no timestamps."""
    driven = log_of(tmp_path, segment_bytes=200)
    for number in range(6):
        put(driven, number % 2, number, timestamp=-1)
    driven.roll()
    for number, segment in enumerate(driven.log.segments):
        os.utime(segment.log.path, (1000 + number, 1000 + number))
    driven.log.config = attrs.evolve(driven.log.config, segment_bytes=1 << 20)
    inactive = len(driven.log.segments) - 1
    compaction.clean(driven)
    assert Path(driven.log.segments.first.log.path).stat().st_mtime == 1000 + inactive - 1


def test_indexes_are_those_of_a_log_that_was_written_that_way(driven: DrivenLog) -> None:
    for number in range(200):
        put(driven, number % 60, number, timestamp=START_MS + number)
    compaction.clean(driven)
    first = driven.log.segments.first
    assert first.offset_index.entries > 10
    names = [first.offset_index.path, first.time_index.path]
    written = [Path(name).read_bytes() for name in names]
    for name in names:
        Path(name).unlink()
    driven.reopen(was_clean=True)
    assert [Path(name).read_bytes() for name in names] == written
    index = driven.run(OffsetIndex.load(first.offset_index.path, 0, 1 << 20))
    assert index is not None
    for offset in range(140, 200):
        assert driven.read(offset, 1).records[:8] == offset.to_bytes(8, "big")


def test_offsets_for_times_are_what_a_scan_gives(tmp_path: Path) -> None:
    driven = log_of(tmp_path, segment_bytes=1000)
    for number in range(100):
        put(driven, number % 30, number, timestamp=START_MS + (number * 37) % 100)
    compaction.clean(driven)
    records = driven.records()
    for timestamp in range(START_MS - 1, START_MS + 102):
        expected = next((record.offset for record in records if record.timestamp >= timestamp), -1)
        assert driven.offset_for(timestamp).offset == expected


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[:RECORD_BATCH_OVERHEAD] + b"!" + data[RECORD_BATCH_OVERHEAD + 1 :], "CRC"),
        (lambda data: data[:-1], r"ends inside the batch at position \d+ of \d+\. See `triolog verify`"),
    ],
    ids=["a record", "the end"],
)
def test_damage_ends_the_round_and_changes_nothing(tmp_path: Path, damage: Callable[[bytes], bytes], why: str) -> None:
    driven = log_of(tmp_path, segment_bytes=300)
    for number in range(30):
        put(driven, number % 5, number)
    driven.roll()
    path = Path(list(driven.log.segments)[3].log.path)
    path.write_bytes(damage(path.read_bytes()))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CorruptRecordError, match=why):
        compaction.clean(driven)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


class _UnsyncedBytes(OsFileSystem):
    """Knows how many bytes of a file were written since its last sync, and the most there ever were."""

    def __init__(self) -> None:
        self.now: dict[int, int] = {}
        self.most = 0

    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        super().write(fd, buffers, position)
        self.now[fd] = self.now.get(fd, 0) + sum(map(len, buffers))
        self.most = max(self.most, *self.now.values())

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.now[fd] = 0


@pytest.mark.parametrize("durable", [True, False])
def test_a_cleaned_segment_is_forced_to_the_device_in_pieces(driven: DrivenLog, durable: bool) -> None:
    for number in range(24):
        put(driven, number % 20, "x" * (MIB - 100))
    fs = _UnsyncedBytes()
    (group,) = clean(fs, job_for(driven, 0, durable=durable))
    assert group.cleaned is not None
    assert fs.most >= SYNC_BYTES
    assert (fs.most < SYNC_BYTES + 3 * MIB) is durable
    driven.close_files()


def test_a_job_survives_its_way_to_another_process(driven: DrivenLog) -> None:
    put_all(driven, [(1, 1)], **idempotent(1, 0))
    end_transaction(driven, 2, commit=True)
    job = job_for(driven, 0, max_bytes_per_second=10)
    assert CleaningJob.decode(job.encode()) == job
    assert job.encode().count(b"\n") == 1


drawn_keys = st.binary(max_size=12)


@given(st.lists(st.tuples(drawn_keys, st.integers(0, 2**62)), max_size=200), st.lists(drawn_keys, max_size=20))
def test_a_key_has_the_offset_that_it_was_given_last(puts: list[tuple[bytes, int]], others: list[bytes]) -> None:
    offsets = OffsetMap(ENTRY_BYTES * 300)
    offsets.put_all(puts)
    expected = dict(puts)
    assert offsets.entries == len(expected)
    for key in [*expected, *others]:
        assert offsets.get(key) == expected.get(key, -1)


@pytest.mark.parametrize("slots", [3, 4, 7, 100, 1009])
def test_a_full_map_finds_what_it_has_and_misses_what_it_has_not(slots: int) -> None:
    """Kafka: OffsetMapTest.testBasicValidation, at the limit."""
    offsets = OffsetMap(slots * ENTRY_BYTES, load_factor=1.0)
    for number in range(offsets.max_entries - 1):
        assert offsets.has_room(1)
        offsets.put_all([(str(number).encode(), number)])
    assert [offsets.get(str(number).encode()) for number in range(offsets.max_entries - 1)] == [*range(offsets.max_entries - 1)]
    assert offsets.get(b"absent") == -1
    assert not offsets.has_room(2)


def test_memory_is_what_was_allowed_rounded_down_to_a_prime_number_of_entries() -> None:
    """A key that is put again takes no room."""
    assert OffsetMap(24 * 100).max_entries == int(97 * 0.9)
    for memory_bytes in (0, 24, 71):
        with pytest.raises(ValueError, match="is too small"):
            OffsetMap(memory_bytes)
    known = OffsetMap(3 * ENTRY_BYTES)
    for offset in range(100):
        known.put_all([(b"key", offset)])
    assert (known.entries, known.get(b"key")) == (1, 99)


LARGE = 2**31


def source(base_offset: int, size: int = 10, index: int = 8) -> SourceSegment:
    return SourceSegment(base_offset, size, index, index, 0)


def groups(segments: list[SourceSegment], end_offset: int, *, most: int = LARGE, most_index: int = LARGE) -> list[list[int]]:
    found = group_segments(segments, end_offset, max_bytes=most, max_index_bytes=most_index)
    return [[each.base_offset for each in group] for group in found]


TEN = [source(base_offset) for base_offset in range(10)]


def test_offsets_of_a_group_fit_in_32_bits() -> None:
    """Measured from its first source. An empty one goes with any: otherwise an empty log would be left every 2^31 offsets.
    Kafka: LogCleanerTest.testSegmentGroupingWithSparseOffsets, testSegmentGroupingFollowingLoadOfZeroIndex."""
    assert groups([source(0), source(1)], INT32_MAX + 1) == [[0, 1]]
    assert groups([source(0), source(1)], INT32_MAX + 2) == [[0], [1]]
    assert groups([source(0), source(1), source(INT32_MAX)], INT32_MAX + 2) == [[0, 1], [INT32_MAX]]
    half = INT32_MAX // 2
    assert groups([source(0), source(half), source(2 * half)], 3 * half) == [[0, half], [2 * half]]
    assert groups([source(0), source(INT32_MAX + 5, size=0)], INT32_MAX + 9) == [[0, INT32_MAX + 5]]


def test_groups_are_as_large_as_the_limits_let_them_be() -> None:
    """Kafka: LogCleanerTest.testSegmentGrouping."""
    alone, threes = [[base_offset] for base_offset in range(10)], [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert groups(TEN, 10) == [[*range(10)]]
    assert groups(TEN, 10, most=1) == groups(TEN, 10, most_index=1) == alone
    assert groups(TEN, 10, most=3 * 10 + 1) == groups(TEN, 10, most_index=3 * 8 + 1) == threes
    assert groups([], 0) == []
