"""The directory of a partition."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.server.config import LogConfig
from triolog.server.storage.directory.partition_directory import (
    check_topic_id,
    create_partition,
    delete_directory,
    read_topic_id,
)
from triolog.server.storage.disk.checkpoints import InconsistentTopicIdError
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError
from triolog.server.storage.recovery.recovery import OpenLog

from tests.support.gate_fs import GateFileSystem
from tests.support.logs import TOPIC_PARTITION, Clock

TOPIC_ID: Final = uuid.UUID("c2acf7d7-591e-4689-a804-fb2b3703c088")


def request(directory: Path, *, sync_metadata: bool = True) -> OpenLog:
    return OpenLog(
        topic_partition=TOPIC_PARTITION,
        directory=str(directory),
        config=LogConfig(),
        now_ms=Clock(),
        was_clean=True,
        sync_metadata=sync_metadata,
    )


def test_a_new_partition_has_its_files_and_their_names_are_on_the_device(tmp_path: Path) -> None:
    fs, directory = GateFileSystem(), tmp_path / "topic-0"
    log = create_partition(fs, request(directory), TOPIC_ID)
    assert sorted(path.name for path in directory.iterdir()) == [
        "00000000000000000000.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert read_topic_id(fs, str(directory)) == TOPIC_ID
    assert fs.synced[-1:] == [f"{directory}/"]


def test_where_nothing_outlives_the_process_no_directory_is_synced(tmp_path: Path) -> None:
    fs = GateFileSystem()
    create_partition(fs, request(tmp_path / "topic-0", sync_metadata=False), TOPIC_ID)
    assert fs.synced == []


def test_a_directory_of_another_topic_of_that_name_is_refused(tmp_path: Path) -> None:
    """Kafka: PartitionMetadataFileTest.testSetRecordWithDifferentTopicId."""
    fs = OsFileSystem()
    create_partition(fs, request(tmp_path), TOPIC_ID)
    check_topic_id(fs, str(tmp_path), TOPIC_ID)
    with pytest.raises(InconsistentTopicIdError, match="was left by another topic of that name") as caught:
        check_topic_id(fs, str(tmp_path), uuid.UUID(int=TOPIC_ID.int + 1))
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_directory_without_metadata_belongs_to_any_topic(tmp_path: Path) -> None:
    assert read_topic_id(OsFileSystem(), str(tmp_path)) is None
    check_topic_id(OsFileSystem(), str(tmp_path), TOPIC_ID)


def test_metadata_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "partition.metadata").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=r"partition\.metadata"):
        read_topic_id(OsFileSystem(), str(tmp_path))


def test_a_directory_is_deleted_with_all_in_it_once_or_twice(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    create_partition(OsFileSystem(), request(directory), TOPIC_ID)
    (directory / "deeper").mkdir()
    (directory / "deeper" / "file").touch()
    for _ in range(2):
        delete_directory(OsFileSystem(), str(directory))
    assert list(tmp_path.iterdir()) == []
