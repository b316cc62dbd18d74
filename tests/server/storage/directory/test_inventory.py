"""What a stopped directory holds, told without opening a log: names by their kind, topics of its list, and others."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.storage.directory.catalogue import ADOPTED_CONFIGS, ADOPTED_INTERNAL_CONFIGS, StoredTopics
from triolog.server.storage.directory.inventory import read_directory, read_partition
from triolog.server.storage.directory.topics_file import (
    CREATIONS_FILE,
    TOPICS_FILE,
    Creation,
    Topic,
    encode_creations,
    encode_topics,
)
from triolog.server.storage.disk.checkpoints import PARTITION_METADATA_FILE, encode_partition_metadata
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.disk.paths import DELETE_DIR_SUFFIX, marked_directory
from triolog.server.storage.errors import CheckpointError, LogDirectoryError

BASE = "00000000000000000042"


def made(directory: Path, *names: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_bytes(name.encode())
    return directory


def test_every_name_of_a_partition_has_its_kind(tmp_path: Path) -> None:
    kinds = {
        "small": ("leader-epoch-checkpoint", "partition.metadata", "quarantine-checkpoint"),
        "set_aside": (
            f"{BASE}.index.corrupt-0",
            f"{BASE}.log.corrupt-70",
            f"{BASE}.log.corrupt-70.2",
            "partition.metadata.corrupt-0",
            "quarantine-checkpoint.corrupt",
        ),
        "leftovers": (f"{BASE}.index.tmp", f"{BASE}.log.cleaned", f"{BASE}.log.deleted", f"{BASE}.log.swap"),
        "orphans": ("00000000000000000099.index", "00000000000000000099.timeindex"),
        "foreign": ("7.log", "notes.txt"),
    }
    own = (f"{BASE}.log", f"{BASE}.index", f"{BASE}.txnindex", f"{BASE}.snapshot", "00000000000000000050.snapshot")
    path = made(tmp_path / "t-0", *own, *(name for names in kinds.values() for name in names))
    files = read_partition(OsFileSystem(), str(path))
    for kind, names in kinds.items():
        assert set(getattr(files, kind)) == set(names), kind
    (segment,) = files.segments
    assert (segment.base_offset, set(segment.sizes)) == (42, {".log", ".index", ".txnindex"})
    assert segment.log_bytes == files.log_bytes == len(f"{BASE}.log")
    assert files.snapshots == (42, 50)
    assert files.topic_partition == TopicPartition("t", 0)


def test_a_log_directory_has_partitions_marked_and_foreign_directories(tmp_path: Path) -> None:
    for name in ("b-1", "b-0", "a-10", f"c-0.{'0' * 32}-delete", "pictures", "lost+found", "__cluster_metadata-0"):
        made(tmp_path / name, f"{BASE}.log")
    made(tmp_path, "meta.properties")
    found = read_directory(OsFileSystem(), f"{tmp_path}/")
    assert [str(files.topic_partition) for files in found.partitions] == ["a-10", "b-0", "b-1"]
    assert found.marked == (f"c-0.{'0' * 32}-delete",)
    assert found.foreign == ("pictures",)
    assert found.is_whole


def test_topics_and_the_directory_of_a_partition_choose_partitions(tmp_path: Path) -> None:
    for name in ("b-1", "b-0", "a-0", "backup"):
        made(tmp_path / name, f"{BASE}.log")
    fs = OsFileSystem()
    found = read_directory(fs, str(tmp_path), topics=frozenset({"b"}))
    assert [str(files.topic_partition) for files in found.partitions] == ["b-0", "b-1"]
    assert not found.is_whole
    with pytest.raises(LogDirectoryError, match="has no partition of topic 'x'"):
        read_directory(fs, str(tmp_path), topics=frozenset({"x"}))
    found = read_directory(fs, str(tmp_path / "b-0"))
    assert (found.path, [files.path for files in found.partitions]) == (str(tmp_path), [str(tmp_path / "b-0")])
    assert not found.is_whole
    with pytest.raises(LogDirectoryError, match="not of the form topic-partition"):
        read_directory(fs, str(tmp_path / "backup"))


LISTED = Topic(name="listed", topic_id=uuid.UUID(int=1000), partitions=4, configs={"segment.bytes": "5000"})


def make_partition(directory: Path, name: str, topic_id: uuid.UUID | None = None) -> None:
    (directory / name).mkdir()
    if topic_id is not None:
        (directory / name / PARTITION_METADATA_FILE).write_bytes(encode_partition_metadata(topic_id))


def stored_topics(directory: Path) -> StoredTopics:
    return StoredTopics.read(OsFileSystem(), str(directory))


def test_a_listed_topic_counts_the_partitions_of_other_directories_too(tmp_path: Path) -> None:
    (tmp_path / TOPICS_FILE).write_bytes(encode_topics(1, [LISTED]))
    make_partition(tmp_path, "listed-2", LISTED.topic_id)
    stored = stored_topics(tmp_path)
    assert stored.topics == (LISTED,)
    assert stored.partitions == {TopicPartition("listed", 2): str(tmp_path / "listed-2")}


def test_a_topic_without_an_entry_is_as_a_server_would_adopt_it(tmp_path: Path) -> None:
    make_partition(tmp_path, "kafkas-0", uuid.UUID(int=2000))
    make_partition(tmp_path, "kafkas-2", uuid.UUID(int=2000))
    make_partition(tmp_path, "__consumer_offsets-0")
    internal, adopted = stored_topics(tmp_path).topics
    assert (adopted.name, adopted.partitions, adopted.topic_id.int, adopted.configs) == ("kafkas", 3, 2000, ADOPTED_CONFIGS)
    assert (internal.name, internal.configs) == ("__consumer_offsets", ADOPTED_INTERNAL_CONFIGS)


def test_a_topic_that_is_being_deleted_is_none(tmp_path: Path) -> None:
    """One of its partitions was renamed before a crash, the other was not yet."""
    (tmp_path / TOPICS_FILE).write_bytes(encode_topics(1, [LISTED]))
    make_partition(tmp_path, marked_directory(TopicPartition("listed", 0), DELETE_DIR_SUFFIX), LISTED.topic_id)
    make_partition(tmp_path, "listed-1", LISTED.topic_id)
    assert stored_topics(tmp_path) == StoredTopics(topics=(), partitions={})


def test_a_topic_that_was_being_made_is_none(tmp_path: Path) -> None:
    creation = Creation(name="made", topic_id=uuid.UUID(int=3000), first_partition=0, partitions=3)
    grown = Creation(name="listed", topic_id=LISTED.topic_id, first_partition=3, partitions=6)
    (tmp_path / TOPICS_FILE).write_bytes(encode_topics(1, [LISTED]))
    (tmp_path / CREATIONS_FILE).write_bytes(encode_creations(1, [creation, grown]))
    make_partition(tmp_path, "listed-3", LISTED.topic_id)
    make_partition(tmp_path, "listed-4", LISTED.topic_id)
    make_partition(tmp_path, "made-1", creation.topic_id)
    stored = stored_topics(tmp_path)
    assert stored.topics == (LISTED,)
    assert list(stored.partitions) == [TopicPartition("listed", 3)]


def test_directories_that_are_no_partitions_of_ours_are_passed_over_and_what_cannot_be_understood_is_refused(
    tmp_path: Path,
) -> None:
    for name in ("lost+found", "__cluster_metadata-0", f"old-0.{'0' * 32}-stray"):
        make_partition(tmp_path, name)
    assert stored_topics(tmp_path) == StoredTopics(topics=(), partitions={})
    make_partition(tmp_path, "flights-0.export")
    with pytest.raises(LogDirectoryError, match=r"flights-0\.export"):
        stored_topics(tmp_path)
    (tmp_path / "flights-0.export").rmdir()
    (tmp_path / TOPICS_FILE).write_text("{")
    with pytest.raises(CheckpointError, match=TOPICS_FILE):
        stored_topics(tmp_path)
