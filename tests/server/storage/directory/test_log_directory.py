"""A log directory and those of its partitions: lock, identity, clean marker, checkpoints, names."""

from __future__ import annotations

import errno
import logging
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition
from triolog.server.config import LogConfig
from triolog.server.storage.directory import partition_directory
from triolog.server.storage.directory.log_directory import LogDirectory, Offsets
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError, LogDirectoryError
from triolog.server.storage.recovery.recovery import OpenLog

from tests.support.gate_fs import GateFileSystem
from tests.support.golden import GOLDEN
from tests.support.logs import TOPIC_PARTITION, Clock

FOO, BAR = TopicPartition("foo", 0), TopicPartition("bar", 3)


@contextmanager
def opened(path: Path) -> Iterator[LogDirectory]:
    directory = LogDirectory.open(OsFileSystem(), str(path), durable=True)
    try:
        yield directory
    finally:
        directory.close()


def test_a_new_directory_takes_on_the_servers_identity_and_one_of_another_server_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        assert (directory.cluster_id, directory.node_id, directory.directory_id) == (None, None, None)
        directory.settle_identity("cluster", 7)
        directory_id = directory.directory_id
    with opened(tmp_path) as again:
        assert (again.cluster_id, again.node_id, again.directory_id) == ("cluster", 7, directory_id)
        before = (tmp_path / checkpoints.META_PROPERTIES_FILE).read_bytes()
        again.settle_identity("cluster", 7)
        for cluster_id, node_id, found in (("other", 7, "cluster.id"), ("cluster", 8, "node.id")):
            with pytest.raises(LogDirectoryError, match=f"{found}=.* belongs to another server"):
                again.settle_identity(cluster_id, node_id)
    assert (tmp_path / checkpoints.META_PROPERTIES_FILE).read_bytes() == before


def test_an_identity_that_finds_no_space_is_written_with_the_next_checkpoints(tmp_path: Path) -> None:
    fs = GateFileSystem()
    fs.fail("write", f"{checkpoints.META_PROPERTIES_FILE}.tmp")
    directory = LogDirectory.open(fs, str(tmp_path), durable=True)
    try:
        directory.settle_identity("cluster", 7)
        assert not (tmp_path / checkpoints.META_PROPERTIES_FILE).exists()
        directory.write_checkpoints({})
        assert b"cluster.id=cluster" in (tmp_path / checkpoints.META_PROPERTIES_FILE).read_bytes()
    finally:
        directory.close()
    with opened(tmp_path) as again:
        assert again.directory_id == directory.directory_id


def test_a_directory_is_locked_while_it_is_open_and_not_when_its_identity_cannot_be_read(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(LogDirectoryError), opened(tmp_path):
        pass
    (tmp_path / checkpoints.META_PROPERTIES_FILE).write_text("version=1\ncluster.id=a\nnode.id=x\n")
    with pytest.raises(CheckpointError, match="cannot be read"), opened(tmp_path):
        pass
    (tmp_path / checkpoints.META_PROPERTIES_FILE).unlink()
    with opened(tmp_path):
        pass


def test_the_marker_of_a_clean_stop_is_there_once(tmp_path: Path) -> None:
    """Kafka: LogLoaderTest.testLogRecoveryIsCalledUponBrokerCrash, CleanShutdownFileHandlerTest.testCleanShutdownFileBasic."""
    with opened(tmp_path) as directory:
        assert not directory.take_clean_marker()
        directory.mark_clean()
    assert (tmp_path / checkpoints.CLEAN_SHUTDOWN_FILE).exists()
    for was_clean in (True, False):
        with opened(tmp_path) as again:
            assert again.take_clean_marker() is was_clean
        assert not (tmp_path / checkpoints.CLEAN_SHUTDOWN_FILE).exists()


def test_checkpoints_are_read_back_and_name_a_log_start_only_while_records_below_it_are_there(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        directory.write_checkpoints({FOO: Offsets(10, 12, 5, 0), BAR: Offsets(3, 4, 2, 2)})
    with opened(tmp_path) as again:
        assert again.recovery_points == {FOO: 10, BAR: 3}
        assert again.log_start_offsets == {FOO: 5}
    data = (tmp_path / "replication-offset-checkpoint").read_bytes()
    assert checkpoints.decode_offsets("file", data) == {FOO: 12, BAR: 4}


def test_a_checkpoint_that_cannot_be_read_counts_as_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"nonsense")
    with caplog.at_level(logging.WARNING), opened(tmp_path) as directory:
        assert directory.recovery_points == {}
    assert "it is taken as empty, so more than needed is recovered" in caplog.text


def test_a_checkpoint_that_says_nothing_new_is_not_written_and_a_directory_that_is_gone_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as directory:
        directory.write_checkpoints({FOO: Offsets(10, 12, 5, 0)})
        path = tmp_path / "data" / "recovery-point-offset-checkpoint"
        before = path.stat().st_ino
        directory.write_checkpoints({FOO: Offsets(10, 13, 5, 0)})
        assert path.stat().st_ino == before
        directory.write_checkpoints({FOO: Offsets(11, 13, 5, 0)})
        assert path.stat().st_ino != before
        shutil.rmtree(tmp_path / "data")
        with pytest.raises(FileNotFoundError):
            directory.write_checkpoints({FOO: Offsets(11, 13, 5, 0)})


def test_the_names_of_a_new_directory_and_of_those_above_are_on_the_device(tmp_path: Path) -> None:
    """Until its identity is: a start that was cut off in between begins again."""
    path = tmp_path / "new" / "data"
    above = [f"{each}/" for each in (path.parent, *path.parent.parents)]
    for _ in range(2):
        fs = GateFileSystem()
        directory = LogDirectory.open(fs, str(path), durable=True)
        assert fs.synced == above
        directory.close()
    directory = LogDirectory.open(fs, str(path), durable=True)
    directory.settle_identity("cluster", 7)
    directory.close()
    fs.calls.clear()
    LogDirectory.open(fs, str(path), durable=True).close()
    assert fs.synced == []


def test_a_directory_above_that_may_not_be_read_is_passed_over_and_one_that_fails_is_not(tmp_path: Path) -> None:
    path = tmp_path / "new" / "data"
    fs = GateFileSystem()
    for number in (errno.EACCES, errno.EIO, errno.EACCES):
        fs.heal()
        fs.fail("sync_directory", "/new", number=number, times=None)
        with pytest.raises(OSError, match="Input/output") if number == errno.EIO else nullcontext():
            LogDirectory.open(fs, str(path), durable=True).close()
        assert number == errno.EIO or f"{tmp_path}/" in fs.synced


@pytest.mark.parametrize("clean", [True, False])
def test_names_are_on_the_device_before_anything_is_loaded(tmp_path: Path, clean: bool) -> None:
    """A sync of them may have failed in the last run: what is seen now must not be taken back later."""
    with opened(tmp_path) as directory:
        directory.settle_identity("cluster", 7)
        if clean:
            directory.mark_clean()
    fs = GateFileSystem()
    directory = LogDirectory.open(fs, str(tmp_path), durable=True)
    assert directory.take_clean_marker() is clean
    assert fs.synced == [f"{tmp_path}/"]
    directory.close()


def test_partitions_of_kafka_are_found_with_its_identity_and_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "data"
    shutil.copytree(GOLDEN / "clean", path, copy_function=shutil.copyfile)
    for one in (path, *path.iterdir()):
        if one.is_dir():
            one.chmod(0o755)
    with opened(path) as directory:
        contents = directory.contents()
        found, doomed = contents.partitions, contents.doomed
        assert found[TopicPartition("parts", 2)] == f"{path}/parts-2"
        assert len(found) == sum(one.is_dir() for one in path.iterdir())
        assert doomed == {}
        assert (directory.cluster_id, directory.node_id) == ("4L6g3nShT-eMCtK--X86sw", 1)
        assert directory.log_start_offsets[TopicPartition("trimmed", 0)] == 333
        assert directory.take_clean_marker()


def test_marked_directories_are_told_apart_and_a_foreign_one_is_refused(tmp_path: Path) -> None:
    mark = "0123456789abcdef0123456789abcdef"
    for name in ("foo-0", f"foo-1.{mark}-delete", f"foo-2.{mark}-stray", "lost+found", "__cluster_metadata-0"):
        (tmp_path / name).mkdir()
    (tmp_path / "a plain file").touch()
    with opened(tmp_path) as directory:
        contents = directory.contents()
        (tmp_path / "non_kafka_dir").mkdir()
        with pytest.raises(LogDirectoryError, match="non_kafka_dir"):
            directory.contents()
    assert contents.partitions == {FOO: f"{tmp_path}/foo-0"}
    assert contents.doomed == {f"{tmp_path}/foo-1.{mark}-delete": TopicPartition("foo", 1)}
    assert contents.stray == [f"{tmp_path}/foo-2.{mark}-stray"]


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


@pytest.mark.parametrize("sync_metadata", [True, False])
def test_a_new_partition_has_its_files_and_their_names_are_on_the_device(tmp_path: Path, sync_metadata: bool) -> None:
    """But where nothing outlives the process."""
    fs, directory = GateFileSystem(), tmp_path / "topic-0"
    log = partition_directory.create_partition(fs, request(directory, sync_metadata=sync_metadata), TOPIC_ID)
    names = ["00000000000000000000.log", "leader-epoch-checkpoint", "partition.metadata"]
    assert sorted(path.name for path in directory.iterdir()) == names
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert partition_directory.read_topic_id(fs, str(directory)) == TOPIC_ID
    assert fs.synced[-1:] == ([f"{directory}/"] if sync_metadata else [])


def test_a_directory_of_another_topic_of_that_name_is_refused(tmp_path: Path) -> None:
    """Kafka: PartitionMetadataFileTest.testSetRecordWithDifferentTopicId."""
    fs = OsFileSystem()
    partition_directory.create_partition(fs, request(tmp_path), TOPIC_ID)
    partition_directory.check_topic_id(fs, str(tmp_path), TOPIC_ID)
    with pytest.raises(checkpoints.InconsistentTopicIdError, match="was left by another topic of that name") as caught:
        partition_directory.check_topic_id(fs, str(tmp_path), uuid.UUID(int=TOPIC_ID.int + 1))
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_directory_without_metadata_belongs_to_any_topic_and_unreadable_metadata_is_an_error(tmp_path: Path) -> None:
    assert partition_directory.read_topic_id(OsFileSystem(), str(tmp_path)) is None
    partition_directory.check_topic_id(OsFileSystem(), str(tmp_path), TOPIC_ID)
    (tmp_path / "partition.metadata").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=r"partition\.metadata"):
        partition_directory.read_topic_id(OsFileSystem(), str(tmp_path))


def test_a_directory_is_deleted_with_all_in_it_once_or_twice(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    partition_directory.create_partition(OsFileSystem(), request(directory), TOPIC_ID)
    (directory / "deeper").mkdir()
    (directory / "deeper" / "file").touch()
    for _ in range(2):
        partition_directory.delete_directory(OsFileSystem(), str(directory))
    assert list(tmp_path.iterdir()) == []
