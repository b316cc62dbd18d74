"""Files that decide what is read, lost or damaged: that is noticed, logged, and put right from the log or other evidence.

No wrong entry of an index decides what is read, deleted or compacted.
"""

from __future__ import annotations

import errno
import shutil
import struct
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import Isolation, TopicPartition
from triolog.server.config import LogConfig
from triolog.server.offline.compact_directory import compact
from triolog.server.offline.repair import reindex
from triolog.server.storage.cleaner.selection import choose
from triolog.server.storage.directory.inventory import read_partition
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError
from triolog.server.storage.indexes.index import IndexTail
from triolog.server.storage.log.changes import truncate_fully_and_start_at, truncate_to
from triolog.server.storage.log.derived_files import FILE_NAME, Facts, IndexFacts, decode_facts, encode_facts, read_facts
from triolog.server.storage.log.retention import (
    confirm_below,
    expire_segments,
    increment_log_start_offset,
    oldest_first,
    take_out_below,
)
from triolog.server.storage.producers.producer_snapshots import snapshot_paths
from triolog.server.storage.producers.producer_state import ProducerState

from tests.support.compaction import end_transaction
from tests.support.crash_fs import CrashFileSystem
from tests.support.golden import GOLDEN
from tests.support.inline_log import make_on_device
from tests.support.logs import START_MS, TOPIC_PARTITION, DrivenLog, batch, open_driven

NAME: Final = "topic-0"
COMMITTED: Final = Isolation.READ_COMMITTED


def send(driven: DrivenLog, sequence: int, *, key: bytes | None = None) -> None:
    """One record of the producer, in a transaction."""
    driven.append(batch(key=key, producer_id=1, producer_epoch=0, base_sequence=sequence, is_transactional=True))


def log_of(directory: Path | str, **options: object) -> DrivenLog:
    """Two closed segments with an aborted and a committed transaction each, an active one with an aborted transaction."""
    driven = open_driven(directory, **options)  # type: ignore[arg-type]
    for number in range(3):
        send(driven, 2 * number)
        end_transaction(driven, 1, commit=False)
        send(driven, 2 * number + 1)
        end_transaction(driven, 1, commit=True)
        if number < 2:
            driven.roll()
    return driven


def committed(driven: DrivenLog) -> list[int]:
    return [record.offset for record in driven.records(COMMITTED)]


def indexes(directory: str) -> list[Path]:
    return sorted(Path(directory).glob("*.txnindex"))


def test_a_clean_stop_without_a_change_notes_the_indexes_that_the_start_rebuilt(tmp_path: Path) -> None:
    """As after a kill. Otherwise a lookup by time would believe a wrong entry in the middle of the last segment's index."""
    config = LogConfig().overlay({"index.interval.bytes": "0", "segment.index.bytes": "120"})
    times = [START_MS + 10 * number for number in range(6)]
    driven = open_driven(tmp_path / NAME, config=config)
    for time in times:
        driven.append(batch(time))
    driven.close_files()
    driven = driven.reopen(was_clean=False)
    driven.close()
    driven.close_files()
    (path,) = Path(tmp_path / NAME).glob("*.timeindex")
    index = path.read_bytes()
    assert struct.unpack_from(">qi", index, 12) == (times[2], 2)
    path.write_bytes(index[:12] + struct.pack(">qi", times[1] + 1, 3) + index[24:])
    again = driven.reopen(was_clean=True, recovery_point=len(times))
    assert [again.offset_for(time).offset for time in times] == list(range(len(times)))
    assert not again.log.modified


DAMAGES: Final = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "another last offset": lambda path: path.write_bytes(changed(path.read_bytes(), 25)),
    "another producer": lambda path: path.write_bytes(changed(path.read_bytes(), 9)),
    "another last stable offset": lambda path: path.write_bytes(changed(path.read_bytes(), 33)),
}


def changed(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]


@pytest.mark.parametrize("slot", range(3))
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_transaction_index_that_was_changed_behind_a_clean_stop_is_made_anew_and_said(
    tmp_path: Path, damage: str, slot: int, caplog: pytest.LogCaptureFixture
) -> None:
    driven = log_of(tmp_path / NAME)
    expected = committed(driven)
    assert len(expected) == 3
    driven.close()
    path = indexes(driven.log.directory)[slot]
    before = path.read_bytes()
    DAMAGES[damage](path)
    again = driven.reopen(was_clean=True)
    assert str(path) in caplog.text
    assert "scanning the segment and rebuilding its indexes" in caplog.text
    assert committed(again) == expected
    assert path.read_bytes() == before
    again.close()
    caplog.clear()
    again.reopen(was_clean=True)
    assert caplog.text == ""


def test_a_closed_segment_below_the_recovery_point_is_looked_at_after_a_kill_and_what_a_recovery_made_is_known(
    tmp_path: Path,
) -> None:
    driven = log_of(tmp_path / NAME)
    expected = committed(driven)
    driven.flush()
    driven.close_files()
    indexes(driven.log.directory)[0].unlink()
    again = driven.reopen(was_clean=False, recovery_point=driven.log.recovery_point)
    assert committed(again) == expected
    (tmp_path / NAME / FILE_NAME).unlink()
    again.close_files()
    driven.reopen(was_clean=False).close()
    for path in indexes(driven.log.directory):
        path.unlink()
    assert committed(driven.reopen(was_clean=True)) == expected


def test_what_kafka_wrote_is_known_once_it_is_adopted(tmp_path: Path) -> None:
    partition = TopicPartition("txn", 0)
    shutil.copytree(GOLDEN / "clean" / "txn-0", tmp_path / "txn-0", copy_function=shutil.copyfile)
    (tmp_path / "txn-0").chmod(0o755)
    driven = open_driven(tmp_path / "txn-0", topic_partition=partition)
    expected, files = committed(driven), {path.name: path.read_bytes() for path in indexes(driven.log.directory)}
    driven.close()
    for path in indexes(driven.log.directory):
        path.unlink()
    again = driven.reopen(was_clean=True)
    assert committed(again) == expected
    assert {path.name: path.read_bytes() for path in indexes(driven.log.directory)} == files


@pytest.mark.parametrize("slot", range(3))
def test_a_segment_that_kafka_wrote_on_is_read_anew(tmp_path: Path, slot: int, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka appends to the active segment, compaction shrinks the others: here both are taken from a log that went on."""
    driven, other = log_of(tmp_path / NAME), log_of(tmp_path / "other-0")
    driven.close()
    base = [segment.base_offset for segment in driven.log.segments][slot]
    if slot == 2:
        send(other, 6)
        end_transaction(other, 1, commit=False)
    other.close()
    for path in Path(other.log.directory).glob(f"{base:020}.*"):
        shutil.copy(path, driven.log.directory)
    if slot < 2:
        # As compaction leaves it: without the records of the aborted transaction, and without its entry.
        log = Path(driven.log.directory, f"{base:020}.log")
        log.write_bytes(log.read_bytes()[2 * (log.stat().st_size // 4) :])
        for suffix in (".index", ".timeindex", ".txnindex"):
            log.with_suffix(suffix).unlink()
        driven.reopen(was_clean=False).close()
        facts = read_facts(driven.fs, driven.log.directory)
        assert facts is not None
        assert base not in facts.indexes
        return
    again = driven.reopen(was_clean=True)
    assert caplog.text == ""
    facts = read_facts(driven.fs, again.log.directory)
    assert facts is not None
    assert facts.indexes[base].index_bytes == 68


def test_a_compacted_segment_is_known_by_its_new_index(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    driven = open_driven(tmp_path / NAME, config=config)
    for number in range(4):
        send(driven, 2 * number, key=b"a")
        send(driven, 2 * number + 1, key=b"b")
        end_transaction(driven, 1, commit=number % 2 == 1)
        driven.roll()
    driven.flush()
    assert compact(driven.fs, driven.log, None) is not None
    driven.close_files()
    expected = committed(driven)
    driven.close()
    facts = read_facts(driven.fs, driven.log.directory)
    there = {int(path.stem): path.stat().st_size for path in indexes(driven.log.directory)}
    assert {base: each.index_bytes for base, each in (facts.indexes if facts else {}).items()} == there
    assert committed(driven.reopen(was_clean=True)) == expected
    assert caplog.text == ""


def trimmed(directory: Path, offset: int) -> DrivenLog:
    """Twenty records, one a batch, ten a segment, of which those below `offset` are deleted; their files are still there."""
    driven = open_driven(directory)
    for number in range(20):
        driven.append(batch())
        if number == 9:
            driven.roll()
    driven.run(increment_log_start_offset(driven.log, offset))
    return driven


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("checkpoint", [0, 3])
def test_records_that_were_deleted_stay_so_without_their_line_in_the_checkpoint(
    tmp_path: Path, was_clean: bool, checkpoint: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A larger offset there counts and is known then: a Kafka has deleted more meanwhile."""
    driven = trimmed(tmp_path / NAME, 7)
    (driven.close if was_clean else driven.close_files)()
    again = driven.reopen(was_clean=was_clean, log_start_offset=checkpoint)
    assert again.offsets() == list(range(7, 20))
    assert f"topic-0: {tmp_path}/log-start-offset-checkpoint records the log start offset {checkpoint}" in caplog.text
    assert f"{tmp_path / NAME}/{FILE_NAME} records 7: using the larger one" in caplog.text
    again.close()
    caplog.clear()
    again = driven.reopen(was_clean=True, log_start_offset=9)
    assert (again.offsets(), caplog.text) == (list(range(9, 20)), "")
    assert again.reopen(was_clean=True, log_start_offset=0).offsets() == list(range(9, 20))


@pytest.mark.parametrize(("interval", "offsets"), [(0, [3, 4]), (4096, [0, 1, 2, 3, 4])])
def test_deleted_records_come_back_where_the_file_is_lost_only_without_index_entries(
    tmp_path: Path, interval: int, offsets: list[int]
) -> None:
    """A clean stop writes the file for every log with index entries."""
    driven = open_driven(tmp_path / NAME, config=LogConfig(index_interval_bytes=interval))
    for _ in range(5):
        driven.append(batch())
    driven.run(increment_log_start_offset(driven.log, 3))
    driven.close()
    (tmp_path / NAME / FILE_NAME).unlink()
    assert driven.reopen(was_clean=True, stopped_here=True, log_start_offset=3).offsets() == offsets


def test_what_kafkas_checkpoint_said_is_known_once_it_is_adopted(tmp_path: Path) -> None:
    def start(**options: int) -> int:
        return open_driven(tmp_path / "trimmed-0", topic_partition=TopicPartition("trimmed", 0), **options).log.log_start_offset

    shutil.copytree(GOLDEN / "clean" / "trimmed-0", tmp_path / "trimmed-0", copy_function=shutil.copyfile)
    (tmp_path / "trimmed-0").chmod(0o755)
    adopted = start() + 3
    assert start(log_start_offset=adopted) == start() == adopted


@pytest.mark.parametrize("how", ["cut", "emptied"])
def test_an_offset_that_the_log_does_not_reach_is_passed_over(tmp_path: Path, how: str) -> None:
    """A Kafka that cut the log back knows nothing of the file; its records are not to go for it."""
    driven = trimmed(tmp_path / NAME, 15)
    driven.close()
    known = (tmp_path / NAME / FILE_NAME).read_bytes()
    driven = driven.reopen(was_clean=True)
    driven.run(truncate_to(driven.log, 12 if how == "cut" else 0))
    if how == "emptied":
        driven.append(batch())
    driven.close()
    (tmp_path / NAME / FILE_NAME).write_bytes(known)
    again = driven.reopen(was_clean=True, log_start_offset=0)
    assert again.log.log_start_offset == 0
    assert again.offsets() == (list(range(12)) if how == "cut" else [0])


@pytest.mark.parametrize("how", ["to", "fully"])
def test_a_cut_below_the_log_start_is_known(tmp_path: Path, how: str) -> None:
    driven = trimmed(tmp_path / NAME, 15)
    driven.run(truncate_to(driven.log, 5) if how == "to" else truncate_fully_and_start_at(driven.log, 5))
    for _ in range(30):
        driven.append(batch())
    driven.close_files()
    again = driven.reopen(was_clean=False, log_start_offset=5)
    assert again.offsets() == list(range(5, 35))


def test_records_of_the_servers_own_topics_are_never_hidden(tmp_path: Path) -> None:
    partition = TopicPartition("__consumer_offsets", 0)
    driven = open_driven(tmp_path / str(partition), topic_partition=partition)
    for _ in range(5):
        driven.append(batch())
    driven.close()
    (tmp_path / str(partition) / FILE_NAME).write_bytes(encode_facts(Facts(4, {})))
    assert driven.reopen(was_clean=True).offsets() == list(range(5))


def test_retention_goes_on_where_the_file_cannot_be_written_and_it_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """On a full disk retention is what makes room."""
    fs = CrashFileSystem()
    driven = open_driven("/data/topic-0", fs=fs, config=LogConfig(retention_bytes=0))
    for _ in range(3):
        driven.append(batch())
        driven.roll()
    for _ in range(2):
        fs.fail_next("write", errno.ENOSPC, after_bytes=0)
        driven.run(increment_log_start_offset(driven.log, driven.log.log_start_offset + 1))
    assert caplog.text.count("trying again with the next change") == 1
    assert read_facts(fs, "/data/topic-0") is None
    assert driven.run(expire_segments(driven.log, driven.clock())) == 3
    facts = read_facts(fs, "/data/topic-0")
    assert facts is not None
    assert facts.log_start_offset == driven.log.log_start_offset == 3
    assert driven.run(take_out_below(driven.log, 3, most=9)) == 3


def test_after_a_clean_stop_the_producer_snapshot_of_a_roll_is_on_the_device() -> None:
    fs = CrashFileSystem()
    make_on_device(fs, "/data/topic-0")
    driven = open_driven("/data/topic-0", fs=fs)
    driven.append(batch(producer_id=7, producer_epoch=0, base_sequence=0))
    driven.roll()
    driven.close()
    for path in snapshot_paths("/data/topic-0", 1):
        assert fs.durable_content(path) == fs.content(path), path


@pytest.mark.parametrize("is_killed", [False, True])
def test_after_a_clean_stop_the_file_is_on_the_device(is_killed: bool) -> None:
    """Otherwise a power cut leaves an older one, whose log start offset would count."""
    fs = CrashFileSystem()
    make_on_device(fs, "/data/topic-0")
    driven = open_driven("/data/topic-0", fs=fs)
    for _ in range(3):
        driven.append(batch())
    driven.run(increment_log_start_offset(driven.log, 2))
    if is_killed:
        driven = driven.reopen(was_clean=False)
        assert driven.log.is_stop_due
    driven.close()
    path = f"/data/topic-0/{FILE_NAME}"
    assert fs.durable_content(path) == fs.content(path)
    facts = read_facts(fs.crash(None), "/data/topic-0")
    assert facts is not None
    assert facts.log_start_offset == 2


def test_a_log_without_aborted_transactions_or_deleted_records_has_no_file(tmp_path: Path) -> None:
    driven = open_driven(tmp_path / NAME)
    driven.append(batch())
    send(driven, 0)
    end_transaction(driven, 1, commit=True)
    driven.roll()
    driven.close()
    driven.reopen(was_clean=False).close()
    assert not (tmp_path / NAME / FILE_NAME).exists()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format_version": 2}', b'{"format_version": 1, "crc32c": 1}'])
def test_an_unreadable_file_is_said_and_made_anew(tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    driven = log_of(tmp_path / NAME)
    driven.close()
    path = tmp_path / NAME / FILE_NAME
    before = path.read_bytes()
    path.write_bytes(data)
    driven.reopen(was_clean=True)
    assert str(path) in caplog.text
    assert path.read_bytes() == before


@pytest.mark.parametrize("was_clean", [True, False])
def test_an_unreadable_file_of_an_empty_log_is_made_anew_too(tmp_path: Path, was_clean: bool) -> None:
    """Seed 92 of the simulated worlds: a power cut had left an empty file, and `verify` reported it from then on."""
    driven = open_driven(tmp_path / NAME)
    driven.close()
    (tmp_path / NAME / FILE_NAME).write_bytes(b"")
    driven.reopen(was_clean=was_clean).close()
    facts = read_facts(OsFileSystem(), str(tmp_path / NAME))
    assert facts is not None
    assert facts.log_start_offset == 0


facts = st.builds(
    Facts,
    st.integers(0, 2**63 - 1),
    st.dictionaries(
        st.integers(0, 2**63 - 1),
        st.builds(IndexFacts, st.integers(0, 2**31 - 1), st.integers(34, 2**31), st.integers(0, 2**32 - 1)),
        max_size=5,
    ),
)


@given(facts)
def test_what_is_written_is_read_and_no_log_start_offset_that_cannot_be(facts: Facts) -> None:
    assert decode_facts("file", encode_facts(facts)) == facts
    for offset in (-1, 2**63):
        with pytest.raises(CheckpointError, match="cannot read some/file"):
            decode_facts("some/file", encode_facts(Facts(offset, facts.indexes)))


LARGEST: Final = 5000
TIMES: Final = (0, 5, 100, LARGEST, 20, 30, 40, 50, 60, 70)
"""Of a segment whose youngest record is neither its first nor its last."""
CONFIG: Final = LogConfig().overlay({"index.interval.bytes": "1", "segment.index.bytes": "2400", "retention.ms": "1000"})
TIME_INDEX: Final = f"{0:020}.timeindex"


def stored(directory: Path, config: LogConfig = CONFIG) -> DrivenLog:
    """Two closed segments and an active one."""
    driven = open_driven(directory, config=config)
    for number in range(3):
        for time in TIMES:
            driven.append(batch(START_MS + time + 100_000 * number, key=b"key"))
        if number < 2:
            driven.roll()
    driven.close()
    return driven


def shortened(driven: DrivenLog) -> DrivenLog:
    """The first time index without its last entry: what is left is true, and hides the largest timestamp. Open it as a server
    that knows no checksum."""
    path = Path(driven.log.directory)
    (path / FILE_NAME).unlink()
    content = (path / TIME_INDEX).read_bytes()
    assert len(content) == 3 * 12
    (path / TIME_INDEX).write_bytes(content[:24])
    return reopened(driven)


def reopened(driven: DrivenLog) -> DrivenLog:
    return driven.reopen(was_clean=True, recovery_point=driven.log.log_end_offset)


def test_without_checksums_retention_reads_timestamps_from_the_batches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driven = shortened(stored(tmp_path))
    log = driven.log
    assert log.segments.first.max_timestamp == START_MS + 100
    assert driven.run(expire_segments(log, START_MS + LARGEST + 1000)) == 0
    assert (log.log_start_offset, log.segments.first.max_timestamp) == (0, START_MS + LARGEST)
    assert "the batches say" in caplog.text
    assert driven.offset_for(START_MS + LARGEST).offset == TIMES.index(LARGEST)
    assert driven.run(expire_segments(log, START_MS + LARGEST + 1001)) == 1


def test_a_full_disk_takes_the_oldest_segment_by_its_batches(tmp_path: Path) -> None:
    first = shortened(stored(tmp_path / "first"))
    second = open_driven(tmp_path / "second", config=CONFIG)
    second.append(batch(START_MS + 200))
    second.roll()
    logs = [first.log, second.log]
    assert list(oldest_first(logs, 1)) == [0]
    assert first.run(confirm_below(first.log, len(TIMES)))
    assert list(oldest_first(logs, 1)) == [1]


def test_compaction_leaves_young_records_by_their_batches(tmp_path: Path) -> None:
    config = CONFIG.overlay({"cleanup.policy": "compact", "min.compaction.lag.ms": "1000"})
    driven = shortened(stored(tmp_path, config))
    chosen = driven.run(choose(driven.log, None, START_MS + LARGEST + 999))
    assert chosen.end_offset == 0
    chosen = driven.run(choose(driven.log, None, START_MS + LARGEST + 1000))
    assert chosen.end_offset == len(TIMES)


def test_a_changed_entry_is_found_before_the_first_lookup_and_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driven = stored(tmp_path)
    path = tmp_path / TIME_INDEX
    whole = path.read_bytes()
    path.write_bytes(whole[:23] + b"\x07" + whole[24:])
    again = reopened(driven)
    assert "CRC" not in caplog.text  # nobody has looked anything up
    for offset, time in enumerate(TIMES[:4]):
        assert again.offset_for(START_MS + time).offset == offset
    assert caplog.text.count("CRC") == 1
    again.close()
    assert not path.exists()
    assert reopened(again).offset_for(START_MS + LARGEST).offset == TIMES.index(LARGEST)
    assert path.read_bytes() == whole


def test_a_healthy_log_opens_and_is_looked_up_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driven = stored(tmp_path)
    facts = read_facts(driven.fs, driven.log.directory)
    assert facts is not None
    assert list(facts.lookups) == [0, 10, 20]
    again = reopened(driven)
    for number in range(3):
        assert again.offset_for(START_MS + LARGEST + 100_000 * number).offset == 10 * number + 3
    again.append(batch(START_MS + 300_000))
    again.roll()
    again.close()
    assert not caplog.text
    assert reopened(again).log.segments.first.is_max_timestamp_certain


def test_an_append_that_an_index_cannot_accept_is_stored_without_its_entry(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, config=CONFIG)
    driven.append(batch())
    segment = driven.log.active
    segment.offset_index.tail = IndexTail(1, 1_000_000, 0)
    segment.time_index.tail = IndexTail(1, START_MS, 1_000_000)
    for number in range(5):
        assert driven.append(batch(START_MS + number)).base_offset == number + 1
    assert driven.offset_for(START_MS + 3).offset == 4
    driven.roll()
    driven.append(batch(START_MS + 9))
    assert driven.offsets() == list(range(7))
    driven.close()
    again = reopened(driven)
    assert again.offsets() == list(range(7))
    assert again.log.segments.first.time_index.last_entry == (START_MS + 4, 5)


def test_reindexing_leaves_no_checksum_of_what_it_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / str(TOPIC_PARTITION)
    driven = stored(directory)
    for path in directory.glob("*.index"):
        path.write_bytes(path.read_bytes()[:8])  # entries farther apart, as Kafka writes them
    files = read_partition(driven.fs, str(directory))
    list(reindex(driven.fs, files, CONFIG.overlay({"index.interval.bytes": "300"}), ProducerState(), lambda size: None))
    again = reopened(driven)
    assert again.offset_for(START_MS + LARGEST).offset == TIMES.index(LARGEST)
    assert not caplog.text
