"""An export to Kafka is all or nothing whatever cuts it off, takes along what belongs to the records, and changes no source.

A real Kafka opens what comes out in tests/kafka.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.errors import CorruptRecordError
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.types import Record, TopicPartition
from triolog.server.config import LogConfig
from triolog.server.offline.export_kafka import (
    STAGED_SUFFIX,
    Exported,
    check_source,
    check_target,
    execute_export,
    locked,
    plan_export,
    read_offsets,
)
from triolog.server.storage.directory.topics_file import TOPICS_FILE, Topic, encode_topics
from triolog.server.storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
)
from triolog.server.storage.disk.filesystem import FileSystem, read_file, replace_file
from triolog.server.storage.errors import LogDirectoryError
from triolog.server.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from triolog.server.storage.producers.producer_snapshots import decode_snapshot

from tests.support.compaction import end_transaction
from tests.support.counts import seeds
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.logs import START_MS, DrivenLog, batch, open_driven

SOURCE: Final = "/triolog"
TARGET: Final = "/kafka"
FULL: Final = TopicPartition("full", 0)
EMPTY: Final = TopicPartition("full", 1)
TRIMMED: Final = TopicPartition("trimmed", 0)
PARTITIONS: Final = (FULL, EMPTY, TRIMMED)
TRIMMED_AT: Final = 3
SMALL: Final = LogConfig().overlay({"segment.bytes": "400", "index.interval.bytes": "0"})
TOPIC_IDS: Final = {name: uuid.UUID(int=number) for number, name in enumerate(("full", "trimmed"), 1000)}
KAFKA_IDS: Final = {name: uuid.UUID(int=number) for number, name in enumerate(("full", "trimmed"), 2000)}
LARGE: Final = 1 << 20


def put(fs: FileSystem, path: str, data: bytes) -> None:
    replace_file(fs, path, data)


def open_partition(fs: FileSystem, directory: str, partition: TopicPartition, **options: int) -> DrivenLog:
    path = f"{directory}/{partition}"
    return open_driven(path, fs=fs, config=SMALL, topic_partition=partition, **options)  # type: ignore[arg-type]


def write_source(fs: FileSystem) -> None:
    """A directory that was stopped in order, with several segments in two of its partitions."""
    fs.make_directory(SOURCE)
    for partition in PARTITIONS:
        log = open_partition(fs, SOURCE, partition)
        for number in range(0 if partition == EMPTY else 8):
            log.append(batch(START_MS + number, value=b"%d" % number * 100), sync=True)
        log.close()
        put(fs, f"{log.log.directory}/{PARTITION_METADATA_FILE}", encode_partition_metadata(TOPIC_IDS[partition.topic]))
    topics = [
        Topic(name=name, topic_id=topic_id, partitions=2 - number) for number, (name, topic_id) in enumerate(TOPIC_IDS.items())
    ]
    put(fs, f"{SOURCE}/{TOPICS_FILE}", encode_topics(1, topics))
    put(fs, f"{SOURCE}/{LOG_START_FILE}", encode_offsets({TRIMMED: TRIMMED_AT}))
    put(fs, f"{SOURCE}/{CLEANER_OFFSET_FILE}", encode_offsets({FULL: 2}))
    put(fs, f"{SOURCE}/{CLEAN_SHUTDOWN_FILE}", encode_clean_shutdown())
    fs.sync_directory("/")


def write_target(fs: FileSystem) -> None:
    """What Kafka leaves when it was formatted, its topics were created, and it was stopped; with a topic of somebody else's."""
    other = TopicPartition("other", 0)
    metadata = encode_meta_properties(cluster_id="kafka", node_id=1, directory_id=uuid.UUID(int=7))
    fs.make_directory(TARGET)
    put(fs, f"{TARGET}/{META_PROPERTIES_FILE}", metadata)
    put(fs, f"{TARGET}/{RECOVERY_POINT_FILE}", encode_offsets({other: 70, **dict.fromkeys(PARTITIONS, 0)}))
    for partition in PARTITIONS:
        path = f"{TARGET}/{partition}"
        fs.make_directory(path)
        put(fs, f"{path}/{PARTITION_METADATA_FILE}", encode_partition_metadata(KAFKA_IDS[partition.topic]))
        for suffix in ("log", "index", "timeindex"):
            put(fs, f"{path}/{0:020d}.{suffix}", b"")
    fs.sync_directory(TARGET)
    fs.sync_directory("/")


def prepared() -> CrashFileSystem:
    disk = CrashFileSystem()
    write_source(disk)
    write_target(disk)
    return disk


@pytest.fixture
def fs() -> CrashFileSystem:
    return prepared()


def export(fs: FileSystem, *, link: bool = True) -> Exported:
    check_source(fs, SOURCE)
    check_target(fs, TARGET)
    plan = plan_export(fs, SOURCE, TARGET)
    return execute_export(fs, plan, link=link, on_bytes=lambda size: None)


def records(fs: FileSystem, directory: str, partition: TopicPartition, log_start_offset: int = 0) -> list[Record]:
    log = open_partition(fs, directory, partition, log_start_offset=log_start_offset)
    found = log.records()
    log.close_files()
    return found


def files(fs: FileSystem, directory: str) -> dict[str, bytes]:
    """Content by path, of a directory and those in it."""
    found: dict[str, bytes] = {}
    for name in fs.list_directory(directory):
        path = f"{directory}/{name}"
        found |= files(fs, path) if fs.is_directory(path) else {path: read_file(fs, path, max_bytes=LARGE)}
    return found


def assert_exported(fs: FileSystem) -> None:
    """Everything is there as it was, under Kafka's topic ids; opened from a copy, since opening rounds files."""
    ends = read_offsets(fs, TARGET, RECOVERY_POINT_FILE)
    assert {partition: ends[partition] for partition in PARTITIONS} == {FULL: 8, EMPTY: 0, TRIMMED: 8}
    assert read_offsets(fs, TARGET, LOG_START_FILE) == {TRIMMED: TRIMMED_AT}
    for partition in PARTITIONS:
        start = TRIMMED_AT if partition == TRIMMED else 0
        metadata = read_file(fs, f"{TARGET}/{partition}/{PARTITION_METADATA_FILE}", max_bytes=LARGE)
        assert metadata == encode_partition_metadata(KAFKA_IDS[partition.topic])
        assert records(fs, TARGET, partition, start) == records(fs, SOURCE, partition, start)


def test_everything_is_laid_out_and_nothing_in_the_source_changed(fs: CrashFileSystem) -> None:
    before = files(fs, SOURCE)
    export(fs)
    assert files(fs, SOURCE) == before
    assert_exported(fs)
    assert read_offsets(fs, TARGET, RECOVERY_POINT_FILE)[TopicPartition("other", 0)] == 70, "what is there of others stays"
    assert read_offsets(fs, TARGET, HIGH_WATERMARK_FILE)[FULL] == 8
    assert read_offsets(fs, TARGET, CLEANER_OFFSET_FILE) == {FULL: 2}


def test_kafka_appends_to_a_segment_of_its_own(fs: CrashFileSystem) -> None:
    """The source's last log is a copy: both sides may go on without touching what the other has."""
    exported = export(fs)
    assert fs.file_size(f"{TARGET}/{FULL}/{8:020d}.log") == 0
    assert exported.linked_files == sum(
        len([name for name in fs.list_directory(f"{SOURCE}/{partition}") if name.endswith(".log")]) - 1
        for partition in (FULL, TRIMMED)
    )
    kafka, ours = files(fs, TARGET), open_partition(fs, SOURCE, FULL)
    ours.append(batch(value=b"x"))
    ours.close()
    assert files(fs, TARGET) == kafka


@pytest.mark.parametrize("link", [True, False])
def test_copies_are_made_where_links_are_refused_or_not_asked_for(fs: CrashFileSystem, link: bool) -> None:
    for _ in range(100 if link else 0):
        fs.fail_next("link", errno.EXDEV)
    assert export(fs, link=link).linked_files == 0
    fs.forget_failures()
    assert_exported(fs)


def test_an_export_that_is_run_again_finds_nothing_to_do(fs: CrashFileSystem) -> None:
    export(fs)
    plan = plan_export(fs, SOURCE, TARGET)
    assert (plan.partitions, len(plan.done)) == ((), 3)
    assert export(fs) == Exported()
    assert_exported(fs)


@pytest.mark.parametrize("seed", seeds(10))
def test_a_power_cut_at_any_change_is_taken_up_by_the_next_run(seed: int) -> None:
    """And until then Kafka refuses to start, or serves either nothing or all of it."""
    for changes in itertools.count(seed, 10):
        disk = prepared()
        disk.cut_after(changes)
        try:
            export(disk)
        except PowerCut:
            pass
        else:
            break
        after = disk.crash(random.Random(seed * 10_000 + changes))
        names = [name for name in after.list_directory(TARGET) if after.is_directory(f"{TARGET}/{name}")]
        if not any(name.endswith(STAGED_SUFFIX) for name in names):
            ends = {
                partition: after.file_size(f"{TARGET}/{partition}/{8:020d}.log") is not None for partition in (FULL, TRIMMED)
            }
            assert len(set(ends.values())) == 1, (changes, ends)
        export(after)
        assert_exported(after)
    assert changes > 50


def test_what_an_export_has_staged_of_another_source_is_not_put_in_place(fs: CrashFileSystem) -> None:
    """The source was served again meanwhile; its topic may even have been deleted and created again."""

    class RefusesTheLastStep(CrashFileSystem):
        def rename(self, source: str, target: str) -> None:
            if source.endswith(STAGED_SUFFIX):
                raise OSError(errno.EIO, os.strerror(errno.EIO), source)
            super().rename(source, target)

    refusing = RefusesTheLastStep()
    refusing._root = fs._root
    with pytest.raises(OSError, match="Input/output"):
        export(refusing)
    [staged] = [partition for partition in PARTITIONS if not files(fs, f"{TARGET}/{partition}")]
    log = open_partition(fs, SOURCE, staged)
    log.append(batch(START_MS), sync=True)
    log.close()
    with pytest.raises(LogDirectoryError, match="holds records from elsewhere"):
        export(fs)


def test_several_log_directories_are_exported_one_after_the_other(fs: CrashFileSystem) -> None:
    """Each has the partitions that lie there; the list of topics is the same in all."""
    other = f"{SOURCE}-2"
    fs.make_directory(other)
    put(fs, f"{other}/{TOPICS_FILE}", read_file(fs, f"{SOURCE}/{TOPICS_FILE}", max_bytes=LARGE))
    for path, data in files(fs, f"{SOURCE}/{FULL}").items():
        fs.make_directory(f"{other}/{FULL}")
        put(fs, path.replace(SOURCE, other), data)
        fs.unlink(path)
    fs.remove_directory(f"{SOURCE}/{FULL}")
    for source in (SOURCE, other):
        execute_export(fs, plan_export(fs, source, TARGET), link=True, on_bytes=lambda size: None)
    assert records(fs, TARGET, FULL) == records(fs, other, FULL)
    assert records(fs, TARGET, TRIMMED) == records(fs, SOURCE, TRIMMED)
    ends = read_offsets(fs, TARGET, RECOVERY_POINT_FILE)
    assert (ends[FULL], ends[TRIMMED]) == (8, 8)


def test_only_producers_with_open_transactions_go_along(fs: CrashFileSystem) -> None:
    """A new cluster gives out the ids of the others again."""
    log = open_partition(fs, SOURCE, FULL)
    for producer_id in (5, 6, 7):
        is_transactional = producer_id != 7
        log.append(batch(producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=is_transactional))
    end_transaction(log, 5, commit=True)
    log.close()
    export(fs)
    path = f"{TARGET}/{FULL}/{12:020d}.snapshot"
    [kept] = decode_snapshot(path, read_file(fs, path, max_bytes=LARGE))
    assert (kept.producer_id, kept.current_txn_first_offset) == (6, 9)
    assert [name for name in fs.list_directory(f"{TARGET}/{FULL}") if name.endswith(".snapshot")] == [path.rpartition("/")[2]]


@pytest.mark.parametrize("is_lost", [False, True], ids=["with their file", "without"])
def test_leader_epochs_of_another_cluster_become_the_first(fs: CrashFileSystem, is_lost: bool) -> None:
    """A batch of epoch 7 in a cluster that is at epoch 2 looks like a truncated log to a consumer."""
    log = open_partition(fs, SOURCE, FULL)
    log.log.leader_epochs.assign(7, 8)
    log.append(batch())
    log.close()
    put(fs, f"{SOURCE}/{FULL}/{LEADER_EPOCH_FILE}", log.log.leader_epochs.encode())
    epochs = [header.partition_leader_epoch for header, _ in iter_batches(open_partition(fs, SOURCE, FULL).read(8).records)]
    assert epochs == [7]
    if is_lost:
        fs.unlink(f"{SOURCE}/{FULL}/{LEADER_EPOCH_FILE}")
    export(fs)
    opened = open_partition(fs, TARGET, FULL)
    found = {header.partition_leader_epoch for offset in range(9) for header, _ in iter_batches(opened.read(offset).records)}
    assert found == {0}
    assert opened.log.leader_epochs.entries == ((0, 0),)
    assert opened.offsets() == list(range(9))


def _unlink_partition(fs: CrashFileSystem, directory: str) -> None:
    for path in files(fs, directory):
        fs.unlink(path)
    fs.remove_directory(directory)


def _tear_last_log(fs: CrashFileSystem) -> None:
    path = max(path for path in files(fs, f"{SOURCE}/{FULL}") if path.endswith(".log"))
    put(fs, path, read_file(fs, path, max_bytes=LARGE) + b"torn")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda fs: fs.unlink(f"{SOURCE}/{CLEAN_SHUTDOWN_FILE}"), "has no clean shutdown"),
        (lambda fs: fs.unlink(f"{TARGET}/{META_PROPERTIES_FILE}"), "kafka-storage.sh format"),
        (lambda fs: put(fs, f"{TARGET}/{TOPICS_FILE}", encode_topics(1, [])), "kafka-storage.sh format"),
        (lambda fs: _unlink_partition(fs, f"{TARGET}/{TRIMMED}"), "^/kafka/trimmed-0 does not exist.*--print-commands"),
        (lambda fs: fs.make_directory(f"{TARGET}/trimmed-1"), "^/kafka/trimmed-1 should not exist: "),
        (lambda fs: put(fs, f"{TARGET}/{EMPTY}/{0:020d}.log", b"x" * 100), "^/kafka/full-1 holds records from elsewhere"),
        (_tear_last_log, "4 bytes after position"),
        (
            lambda fs: fs.unlink(f"{SOURCE}/{FULL}/{8:020d}.snapshot"),
            r"has no .snapshot file at its end \(offset 8, ",  # nobody could tell which transactions are open
        ),
    ],
)
def test_what_cannot_be_exported_whole_is_refused_and_nothing_changed(
    fs: CrashFileSystem, spoil: Callable[[CrashFileSystem], object], message: str
) -> None:
    spoil(fs)
    before = files(fs, TARGET)
    with pytest.raises((LogDirectoryError, CorruptRecordError), match=re.compile(message, re.DOTALL)):
        export(fs)
    assert files(fs, TARGET) == before


def test_a_directory_is_locked_for_the_time_of_the_block(tmp_path: Path) -> None:
    with locked(str(tmp_path)):
        with pytest.raises(LogDirectoryError, match=r"another server \(triolog"), locked(str(tmp_path)):
            raise AssertionError
    with locked(str(tmp_path)):
        pass
