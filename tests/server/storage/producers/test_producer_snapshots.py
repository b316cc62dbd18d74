"""Snapshots of producers, and the file that keeps the last five batches of each: they are known again after any restart."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import AppendResult
from triolog.server.config import LogConfig
from triolog.server.storage.directory.inventory import read_partition
from triolog.server.storage.disk.checkpoints import MAX_CHECKPOINT_BYTES
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.disk.filesystem import FileSystem, OsFileSystem
from triolog.server.storage.errors import CorruptSnapshotError
from triolog.server.storage.log.changes import truncate_to
from triolog.server.storage.log.retention import increment_log_start_offset, take_out_below
from triolog.server.storage.producers import producer_snapshots
from triolog.server.storage.producers.producer_cursor import BatchMetadata, ProducerEntry
from triolog.server.storage.producers.producer_snapshots import (
    batches_path,
    crc_of,
    decode_earlier,
    decode_snapshot,
    encode_earlier,
    encode_snapshot,
    list_snapshots,
    load_newest,
    snapshot_path,
    stray_snapshots,
    take_snapshot,
    with_earlier,
)
from triolog.server.storage.producers.producer_state import ProducerState

from tests.support.counts import counts, draws
from tests.support.crash_fs import CrashFileSystem
from tests.support.flipped_files import flipped
from tests.support.gate_fs import GateFileSystem
from tests.support.golden import GOLDEN
from tests.support.logs import TOPIC_PARTITION, DrivenLog, open_driven
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


PRODUCERS: Final = (7, 8, 9)
IN_FLIGHT: Final = 5
NAME: Final = "topic-0"


def request(producer_id: int, number: int, records: int = 2) -> bytes:
    """A producer's request of that number, counted from 0: one batch."""
    return build_batch(
        [(1_000 + number, None, b"%d" % producer_id, ())] * records,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=number * records,
    )


Answers = dict[tuple[int, int], AppendResult]


def sent(driven: DrivenLog, numbers: range) -> Answers:
    """All producers in turn: each request's answer, by producer and number."""
    return {
        (producer_id, number): driven.append(request(producer_id, number)) for number in numbers for producer_id in PRODUCERS
    }


def answered_again(driven: DrivenLog, answers: Answers) -> None:
    """The last five requests of each producer that the log holds, sent again in order, are answered as they were, and nothing
    is stored."""
    end = driven.log.log_end_offset
    for producer_id in PRODUCERS:
        held = [number for (owner, number), answer in answers.items() if owner == producer_id and answer.last_offset < end]
        for number in held[-IN_FLIGHT:]:
            answer, first = driven.append(request(producer_id, number)), answers[producer_id, number]
            assert (answer.base_offset, answer.last_offset) == (first.base_offset, first.last_offset)
    assert driven.log.log_end_offset == end


def goes_on(driven: DrivenLog, answers: Answers) -> None:
    """The next request of each producer is stored: what was in flight was all of it."""
    last = max(number for _, number in answers)
    end = driven.log.log_end_offset
    sent(driven, range(last + 1, last + 2))
    assert driven.log.log_end_offset == end + 2 * len(PRODUCERS)


@pytest.mark.parametrize("rolls", [False, True])
def test_a_clean_stop_with_five_requests_in_flight_knows_each_of_them_again(tmp_path: Path, rolls: bool) -> None:
    driven = open_driven(tmp_path / NAME)
    answers = sent(driven, range(8))
    if rolls:
        driven.roll()
    for _ in range(3):
        driven.close()
        driven = driven.reopen(was_clean=True, recovery_point=driven.log.log_end_offset)
        answered_again(driven, answers)
    goes_on(driven, answers)
    driven.close()


@pytest.mark.parametrize("behind", range(IN_FLIGHT + 1))
def test_a_kill_behind_a_roll_with_five_requests_in_flight_knows_each_of_them_again(tmp_path: Path, behind: int) -> None:
    """So many of them lie behind the roll."""
    driven = open_driven(tmp_path / NAME)
    answers = sent(driven, range(8 - behind))
    driven.roll()
    driven.flush()
    answers |= sent(driven, range(8 - behind, 8))
    recovery_point = driven.log.recovery_point
    driven.close_files()
    for _ in range(2):
        driven = driven.reopen(was_clean=False, recovery_point=recovery_point)
        answered_again(driven, answers)
        recovery_point = driven.log.recovery_point
    goes_on(driven, answers)
    driven.close()


@pytest.mark.parametrize("rolls", [False, True])
def test_after_a_power_cut_at_any_moment_of_a_roll_or_a_stop_what_is_there_is_known_again(rolls: bool) -> None:
    rng = draws(5)
    fs = CrashFileSystem()
    driven = open_driven("/topic-0", fs=fs)
    fs.sync_directory("/")
    answers = sent(driven, range(7))
    driven.flush()
    moments = fs.moments()
    points = {0: driven.log.recovery_point}
    if rolls:
        driven.roll()
        driven.flush()
        answers |= sent(driven, range(7, 9))
        driven.flush()
        points[len(moments)] = driven.log.recovery_point
    driven.close()
    for number, moment in enumerate(list(moments)):
        point = points[max(at for at in points if at <= number)]
        for after in (moment.copy(), *(moment.crash(rng) for _ in range(counts(20, merge=7)))):
            again = open_driven("/topic-0", fs=after, was_clean=False, recovery_point=point)
            assert again.log.log_end_offset >= point
            answered_again(again, answers)


def stopped(directory: Path, fs: FileSystem | None = None) -> tuple[DrivenLog, Answers]:
    driven = open_driven(directory, fs=fs)
    answers = sent(driven, range(8))
    driven.close()
    return driven, answers


@pytest.mark.parametrize("is_damaged", [False, True])
def test_without_the_file_the_log_tells_the_same(tmp_path: Path, is_damaged: bool, caplog: pytest.LogCaptureFixture) -> None:
    """As in a directory that Kafka wrote. A damaged batch there keeps nobody from opening it: behind a clean stop nobody else
    looks there."""
    driven, answers = stopped(tmp_path / NAME)
    Path(batches_path(driven.log.directory, driven.log.log_end_offset)).unlink()
    if is_damaged:
        size = driven.log.active.size // len(answers)
        with open(driven.log.active.log.path, "r+b") as file:
            file.seek(size * (len(answers) - 4) + 16)
            file.write(b"\7")
    driven = driven.reopen(was_clean=True)
    assert ("magic 7" in caplog.text) is is_damaged
    if is_damaged:
        last = max(number for _, number in answers)
        assert driven.append(request(PRODUCERS[0], last)).base_offset == answers[PRODUCERS[0], last].base_offset
        goes_on(driven, answers)
    else:
        answered_again(driven, answers)


def test_only_the_end_of_the_log_is_read_for_that_and_with_the_file_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_snapshots, "TAIL_BYTES", 32 << 10)
    driven = open_driven(tmp_path / NAME)
    answers = {}
    for number in range(3_000):
        answers |= {(PRODUCERS[0], number): driven.append(request(PRODUCERS[0], number))}
    driven.close()
    read = []
    for _ in range(2):
        fs = GateFileSystem()
        again = open_driven(driven.log.directory, fs=fs)
        read.append(sum(size for name, size in fs.read_bytes.items() if name.endswith(".log")))
        assert [len(entry.batches) for entry in again.log.producers.entries.values()] == [IN_FLIGHT]
        Path(batches_path(driven.log.directory, driven.log.log_end_offset)).unlink(missing_ok=True)
    assert 32 << 10 <= read[1] - read[0] <= 64 << 10
    assert read[0] < 48 << 10


@pytest.mark.parametrize("damage", ["a bit", "a cut", "nothing in it", "of another snapshot"])
def test_a_file_of_another_snapshot_is_skipped_and_said(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    driven, answers = stopped(tmp_path / NAME)
    path = Path(batches_path(driven.log.directory, driven.log.log_end_offset))
    data = path.read_bytes()
    if damage == "of another snapshot":
        path.write_bytes(encode_earlier(driven.log.producers.entries.values(), 99))
    else:
        path.write_bytes({"a bit": data[:-1] + bytes([data[-1] ^ 1]), "a cut": data[:-3], "nothing in it": b""}[damage])
    driven = driven.reopen(was_clean=True)
    assert f"{path}" in caplog.text
    assert "skipped" in caplog.text
    answered_again(driven, answers)


def offsets(driven: DrivenLog) -> tuple[tuple[int, ...], tuple[int, ...]]:
    files = read_partition(driven.fs, driven.log.directory)
    return files.snapshots, files.batches


def test_it_comes_and_goes_with_its_snapshot(tmp_path: Path) -> None:
    """And that one with its segment. Kafka: UnifiedLogTest.testRetentionDeletesProducerStateSnapshots."""
    driven = open_driven(tmp_path / NAME, config=LogConfig(file_delete_delay_ms=0))
    for number in range(4):
        sent(driven, range(number, number + 1))
        driven.roll()
    assert offsets(driven) == ((6, 12, 18, 24), (6, 12, 18, 24))
    driven.run(increment_log_start_offset(driven.log, 13))
    driven.run(take_out_below(driven.log, 13, most=9))
    assert offsets(driven) == ((12, 18, 24), (12, 18, 24))
    assert driven.run(truncate_to(driven.log, 20))
    assert offsets(driven) == ((12, 18), (12, 18))
    driven.close()
    assert offsets(driven) == ((12, 18, 20), (12, 18, 20))


@pytest.mark.parametrize("was_clean", [True, False])
def test_one_without_a_snapshot_is_removed(tmp_path: Path, was_clean: bool) -> None:
    driven, _ = stopped(tmp_path / NAME)
    stray = Path(batches_path(driven.log.directory, 5))
    stray.write_bytes(b"left by a Kafka that deleted the snapshot")
    driven.reopen(was_clean=was_clean)
    assert not stray.exists()


def test_one_that_a_kill_left_without_its_snapshot_is_not_kept_for_another(tmp_path: Path) -> None:
    """Producers were forgotten in between. A log without idempotent producers has none."""
    driven, plain = open_driven(tmp_path / NAME), build_batch([(1_000, None, b"value", ())])
    driven.append(plain)
    driven.roll()
    assert offsets(driven) == ((1,), ())
    driven.append(plain)
    (tmp_path / NAME / f"{1:020}.snapshot").unlink()
    left = Path(batches_path(driven.log.directory, 1))
    left.write_bytes(encode_earlier([entry(0, 0)], 5))
    driven.close_files()
    driven = driven.reopen(was_clean=False)
    assert offsets(driven) == ((1, 2), ())


kept_batches = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 5), st.integers(-1, 2**62)), max_size=5)


@given(st.dictionaries(st.integers(0, 2**63 - 1), kept_batches, max_size=5), st.integers(0, 2**32 - 1))
def test_what_is_written_is_read(made: dict[int, list[tuple[int, int, int]]], crc: int) -> None:
    entries = []
    for producer_id, each in made.items():
        numbered = tuple(BatchMetadata(sequence, 10 * place + 9, delta, ms) for place, (sequence, delta, ms) in enumerate(each))
        entries.append(ProducerEntry(producer_id, 0, -1, 1, None, numbered))
    newest = [entry._replace(batches=entry.batches[-1:]) for entry in entries]
    assert with_earlier("file", encode_earlier(entries, crc), newest, crc) == entries


def entry(*last_offsets: int) -> ProducerEntry:
    return ProducerEntry(7, 0, -1, 1, None, tuple(BatchMetadata(offset, offset, 0, 1) for offset in last_offsets))


@pytest.mark.parametrize(
    ("kept", "snapshot"),
    [
        (entry(1, 2, 9), entry(2)),
        (entry(2, 1, 9), entry(9)),
        (entry(1, 9), entry()),
        (entry(1, 9), entry(9)._replace(producer_id=8)),
    ],
)
def test_batches_that_cannot_come_before_the_newest_are_refused(kept: ProducerEntry, snapshot: ProducerEntry) -> None:
    with pytest.raises(CorruptSnapshotError, match=r"do not ascend to its newest|which the snapshot does not have"):
        with_earlier("file", encode_earlier([kept], 1), [snapshot], 1)


def test_any_flipped_bit_is_noticed() -> None:
    data = encode_earlier([entry(1, 2, 9)], 5)
    for bit in range(8 * len(data)):
        with pytest.raises(CorruptSnapshotError, match="file"):
            decode_earlier("file", flipped(data, bit))


def test_a_file_of_the_snapshots_crc_alone_is_told_from_another(tmp_path: Path) -> None:
    snapshot = encode_snapshot([entry(9)])
    data = encode_earlier([entry(1, 9)], crc_of(snapshot))
    assert with_earlier("file", data, [entry(9)], crc_of(snapshot)) == [entry(1, 9)]
    with pytest.raises(CorruptSnapshotError, match="belongs to a snapshot with CRC"):
        with_earlier("file", data, [entry(9)], crc_of(encode_snapshot([entry(10)])))
