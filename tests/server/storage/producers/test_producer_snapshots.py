from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.records.batch import iter_batches
from triolog.server.storage.disk.checkpoints import MAX_CHECKPOINT_BYTES
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CorruptSnapshotError
from triolog.server.storage.producers.producer_cursor import BatchMetadata, ProducerEntry
from triolog.server.storage.producers.producer_snapshots import (
    batches_path,
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
    load_newest,
    snapshot_path,
    stray_snapshots,
    take_snapshot,
)
from triolog.server.storage.producers.producer_state import ProducerState

from tests.support.flipped_files import flipped
from tests.support.golden import GOLDEN
from tests.support.logs import TOPIC_PARTITION
from tests.support.producer_appends import header

CLEAN = GOLDEN / "clean"

FS = OsFileSystem()
ENTRY = ProducerEntry(7, 3, 2, 1000, 40, (BatchMetadata(9, 50, 4, 1000),))

int16, int32, int64 = (st.integers(0, 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
batches = st.none() | st.builds(BatchMetadata, int32, int64, int32, st.just(0))


@st.composite
def entries(draw: st.DrawFn) -> ProducerEntry:
    timestamp, newest = draw(int64), draw(batches)
    return ProducerEntry(
        draw(int64),
        draw(int16),
        draw(st.integers(-1, 2**31 - 1)),
        timestamp,
        draw(st.none() | int64),
        () if newest is None else (newest._replace(timestamp=timestamp),),
    )


@given(st.lists(entries()))
def test_entries_come_back_with_their_newest_batch(written: list[ProducerEntry]) -> None:
    assert decode_snapshot("f", encode_snapshot(written)) == written
    earlier = (BatchMetadata(4, 45, 4, 900),)
    more = [each._replace(batches=earlier + each.batches) if each.batches else each for each in written]
    assert decode_snapshot("f", encode_snapshot(more)) == written
    assert len(encode_snapshot([])) == 10, "as an empty topic of Kafka has them"


def test_every_cut_and_every_flipped_bit_is_noticed() -> None:
    data = encode_snapshot([ENTRY, ENTRY._replace(producer_id=8)])
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshotError, match=r"^f "):
            decode_snapshot("f", data[:size])
    for bit in range(8 * len(data)):
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot("f", flipped(data, bit))
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot("f", data + b"\0")


UNCOMPACTED = [path for path in sorted(CLEAN.glob("*/*.snapshot")) if path.parent.name != "compacted-0"]
"""Compaction removes batches that later snapshots still count."""


@pytest.mark.parametrize("path", UNCOMPACTED, ids=lambda path: f"{path.parent.name}-{path.stem[-4:]}")
def test_replaying_the_log_gives_what_kafka_wrote(path: Path) -> None:
    expected = decode_snapshot(str(path), path.read_bytes())
    state = ProducerState()
    for log in sorted(path.parent.glob("*.log")):
        for each, batch in iter_batches(log.read_bytes()):
            if each.base_offset < int(path.stem):
                state.replay(each, batch)
    found = decode_snapshot("found", encode_snapshot(state.entries.values()))
    assert sorted(found) == sorted(expected)


def test_a_second_snapshot_without_progress_writes_no_file(tmp_path: Path) -> None:
    """Kafka: ProducerStateManagerTest.testSkipSnapshotIfOffsetUnchanged."""
    state = ProducerState(5, {7: ENTRY})
    drive(FS, take_snapshot(str(tmp_path), state, durable=True))
    path = Path(snapshot_path(str(tmp_path), 5))
    path.unlink()
    drive(FS, take_snapshot(str(tmp_path), state, durable=True))
    assert not path.exists()


def test_the_newest_readable_snapshot_in_range_is_taken_and_a_broken_one_deleted(tmp_path: Path) -> None:
    """Also one that is too large to be read. Kafka: ProducerStateManagerTest.testTruncateAndReloadRemovesOutOfRangeSnapshots,
    testLoadFromCorruptSnapshotFile."""
    for offset in (1, 2, 3, 4, 5):
        data = encode_snapshot([ENTRY._replace(epoch=offset)])
        Path(snapshot_path(str(tmp_path), offset)).write_bytes(data if offset != 3 else data[:-1])
    os.truncate(snapshot_path(str(tmp_path), 5), MAX_CHECKPOINT_BYTES + 1)

    def load(log_start: int, end: int) -> ProducerState:
        return drive(FS, load_newest(str(tmp_path), drive(FS, list_snapshots(str(tmp_path))), log_start, end))

    assert (load(0, 9).end_offset, load(0, 9).entries[7].epoch) == (4, 4)
    assert load(0, 3).end_offset == 2
    assert drive(FS, list_snapshots(str(tmp_path))) == [1, 2, 4]
    assert load(0, 9).first_unstable_offset == 40
    nothing = load(2, 3)
    assert (nothing.end_offset, nothing.entries, nothing.snapshot_offset) == (2, {}, -1)


def test_a_snapshot_inside_a_transaction_has_its_start_and_the_last_batch(tmp_path: Path) -> None:
    """Kafka: ProducerStateManagerTest.testRecoverFromSnapshotUnfinishedTransaction."""
    state = ProducerState()
    for offset in (0, 1):
        state.replay(header(offset, offset, txn=True), b"")
    drive(FS, take_snapshot(str(tmp_path), state, durable=True))
    assert drive(FS, load_newest(str(tmp_path), [2], 0, 2)).entries == state.entries, "with what lies beside it"
    Path(batches_path(str(tmp_path), 2)).unlink()
    loaded = drive(FS, load_newest(str(tmp_path), [2], 0, 2))
    (last,) = loaded.entries[7].batches
    assert (last.first_sequence, last.last_sequence) == (1, 1)
    assert loaded.entries[7].current_txn_first_offset == loaded.first_unstable_offset == 0
    assert loaded.cursor().admit(TOPIC_PARTITION, [header(2, 2, txn=True)]) is None


@pytest.mark.parametrize(
    ("snapshots", "segments", "strays"),
    [([2, 5, 42], [5], [2]), ([2, 5, 42], [42], [2, 5]), ([1, 2, 3, 4], [0, 1, 2], [3]), ([3], [5], [3]), ([], [0], [])],
)
def test_strays_go_and_the_one_of_a_clean_stop_stays(snapshots: list[int], segments: list[int], strays: list[int]) -> None:
    """Kafka: ProducerStateManagerTest.testRemoveStraySnapshotsKeepCleanShutdownSnapshot, testRemoveAllStraySnapshots,
    LogLoaderTest.testLoadingLogKeepsLargestStrayProducerStateSnapshot."""
    assert stray_snapshots(snapshots, segments) == strays
