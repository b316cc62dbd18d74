"""What a stopped directory holds, told without opening a log: topics of its list, and those that only directories tell of."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.storage.directory.catalogue import ADOPTED_CONFIGS, ADOPTED_INTERNAL_CONFIGS
from triolog.server.storage.directory.creations_file import CREATIONS_FILE, Creation, encode_creations
from triolog.server.storage.directory.stored_topics import StoredTopics
from triolog.server.storage.directory.topics_file import TOPICS_FILE, Topic, encode_topics
from triolog.server.storage.disk.checkpoints import PARTITION_METADATA_FILE, encode_partition_metadata
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.disk.paths import DELETE_DIR_SUFFIX, marked_directory
from triolog.server.storage.errors import CheckpointError, LogDirectoryError

LISTED = Topic(name="listed", topic_id=uuid.UUID(int=1000), partitions=4, configs={"segment.bytes": "5000"})


def make(directory: Path, name: str, topic_id: uuid.UUID | None = None) -> None:
    (directory / name).mkdir()
    if topic_id is not None:
        (directory / name / PARTITION_METADATA_FILE).write_bytes(encode_partition_metadata(topic_id))


def read(directory: Path) -> StoredTopics:
    return StoredTopics.read(OsFileSystem(), str(directory))


def test_a_listed_topic_counts_the_partitions_of_other_directories_too(tmp_path: Path) -> None:
    (tmp_path / TOPICS_FILE).write_bytes(encode_topics(1, [LISTED]))
    make(tmp_path, "listed-2", LISTED.topic_id)
    stored = read(tmp_path)
    assert stored.topics == (LISTED,)
    assert stored.partitions == {TopicPartition("listed", 2): str(tmp_path / "listed-2")}


def test_a_topic_without_an_entry_is_as_a_server_would_adopt_it(tmp_path: Path) -> None:
    make(tmp_path, "kafkas-0", uuid.UUID(int=2000))
    make(tmp_path, "kafkas-2", uuid.UUID(int=2000))
    make(tmp_path, "__consumer_offsets-0")
    internal, adopted = read(tmp_path).topics
    assert (adopted.name, adopted.partitions, adopted.topic_id.int, adopted.configs) == ("kafkas", 3, 2000, ADOPTED_CONFIGS)
    assert (internal.name, internal.configs) == ("__consumer_offsets", ADOPTED_INTERNAL_CONFIGS)


def test_a_topic_that_is_being_deleted_is_none(tmp_path: Path) -> None:
    """One of its partitions was renamed before a crash, the other was not yet."""
    (tmp_path / TOPICS_FILE).write_bytes(encode_topics(1, [LISTED]))
    make(tmp_path, marked_directory(TopicPartition("listed", 0), DELETE_DIR_SUFFIX), LISTED.topic_id)
    make(tmp_path, "listed-1", LISTED.topic_id)
    assert read(tmp_path) == StoredTopics(topics=(), partitions={})


def test_a_topic_that_was_being_made_is_none(tmp_path: Path) -> None:
    creation = Creation(name="made", topic_id=uuid.UUID(int=3000), first_partition=0, partitions=3)
    grown = Creation(name="listed", topic_id=LISTED.topic_id, first_partition=3, partitions=6)
    (tmp_path / TOPICS_FILE).write_bytes(encode_topics(1, [LISTED]))
    (tmp_path / CREATIONS_FILE).write_bytes(encode_creations(1, [creation, grown]))
    make(tmp_path, "listed-3", LISTED.topic_id)
    make(tmp_path, "listed-4", LISTED.topic_id)
    make(tmp_path, "made-1", creation.topic_id)
    stored = read(tmp_path)
    assert stored.topics == (LISTED,)
    assert list(stored.partitions) == [TopicPartition("listed", 3)]


def test_directories_that_are_no_partitions_of_ours_are_passed_over(tmp_path: Path) -> None:
    for name in ("lost+found", "__cluster_metadata-0", f"old-0.{'0' * 32}-stray"):
        make(tmp_path, name)
    assert read(tmp_path) == StoredTopics(topics=(), partitions={})


def test_what_cannot_be_understood_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "flights-0.export")
    with pytest.raises(LogDirectoryError, match=r"flights-0\.export"):
        read(tmp_path)
    (tmp_path / "flights-0.export").rmdir()
    (tmp_path / TOPICS_FILE).write_text("{")
    with pytest.raises(CheckpointError, match=TOPICS_FILE):
        read(tmp_path)
