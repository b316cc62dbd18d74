"""A log directory and those of its partitions: its lock, identity, clean marker, checkpoints and names, also where no log is
opened."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition
from triolog.server.config import LogConfig
from triolog.server.storage.directory import log_directory, partition_directory
from triolog.server.storage.directory.catalogue import ADOPTED_CONFIGS, ADOPTED_INTERNAL_CONFIGS, StoredTopics
from triolog.server.storage.directory.inventory import read_directory, read_partition
from triolog.server.storage.directory.log_directory import DirectoryLock, LogDirectory, Offsets
from triolog.server.storage.directory.topics_file import (
    CREATIONS_FILE,
    TOPICS_FILE,
    Creation,
    Topic,
    encode_creations,
    encode_topics,
)
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.disk.checkpoints import LOCK_FILE, PARTITION_METADATA_FILE, encode_partition_metadata
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.disk.paths import DELETE_DIR_SUFFIX, marked_directory
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
    with pytest.raises(CheckpointError, match="cannot read"), opened(tmp_path):
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
    with opened(tmp_path) as directory:
        assert directory.recovery_points == {}
    assert "treating it as empty" in caplog.text


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
    with pytest.raises(checkpoints.InconsistentTopicIdError, match="belongs to another topic of that name") as caught:
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


def test_directories_that_are_no_partitions_of_ours_are_skipped_and_unreadable_ones_refused(tmp_path: Path) -> None:
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


HOLD_AS_KAFKA: Final = """
import fcntl, sys
stream = open(sys.argv[1], "a+b")
fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""
TRY_AS_KAFKA: Final = """
import fcntl, sys
with open(sys.argv[1], "r+b") as stream:
    fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


def kafka_can_lock(directory: Path) -> bool:
    command = [sys.executable, "-c", TRY_AS_KAFKA, str(directory / LOCK_FILE)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


@contextlib.contextmanager
def held(directory: str) -> Iterator[None]:
    lock = DirectoryLock.acquire(directory)
    try:
        yield
    finally:
        lock.release()


def test_a_second_owner_in_this_process_is_refused_with_the_first_ones_name(tmp_path: Path) -> None:
    """Also under another name of the directory; another directory has another lock."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "alias").symlink_to("one")
    with held(str(tmp_path / "one")), held(str(tmp_path / "two")):
        for name in ("one", "alias"):
            why = rf"triolog, process {os.getpid()}\) holds the lock of log directory {tmp_path / name}\. Stop it first"
            with pytest.raises(LogDirectoryError, match=why):
                DirectoryLock.acquire(str(tmp_path / name))
    with pytest.raises(FileNotFoundError):
        DirectoryLock.acquire(str(tmp_path / "none"))


def test_removing_the_file_lets_no_second_owner_in_and_kafkas_file_is_not_made_anew(tmp_path: Path) -> None:
    with held(str(tmp_path)):
        (tmp_path / LOCK_FILE).unlink()
        with pytest.raises(LogDirectoryError, match=rf"\(Kafka or triolog\) holds the lock of log directory {tmp_path}"):
            DirectoryLock.acquire(str(tmp_path))
        assert not (tmp_path / LOCK_FILE).exists()
    DirectoryLock.acquire(str(tmp_path)).release()


def test_where_directories_cannot_be_locked_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS: `flock` is a record lock there, and a directory cannot be open for writing."""

    def nfs_flock(fd: int, operation: int, flock: Callable[[int, int], None] = fcntl.flock) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", nfs_flock)
    with held(str(tmp_path)):
        with pytest.raises(LogDirectoryError, match=r"\(triolog, process"):
            DirectoryLock.acquire(str(tmp_path))


def test_a_full_device_keeps_nobody_from_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the name of the holder has no room."""

    def no_space(fd: int, data: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", no_space)
        lock = DirectoryLock.acquire(str(tmp_path))
    with pytest.raises(LogDirectoryError, match=r"another server \(Kafka or triolog\)"):
        DirectoryLock.acquire(str(tmp_path))
    lock.release()


@pytest.mark.parametrize("has_open_file_locks", [True, False])
def test_kafka_is_kept_out_until_the_lock_is_released_also_after_a_second_owner_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_open_file_locks: bool
) -> None:
    """Without locks of open files, a process loses its record lock when it closes the file a second time."""
    if not has_open_file_locks:
        monkeypatch.setattr(log_directory, "_OPEN_FILE_LOCK", None)
    with held(str(tmp_path)):
        assert not kafka_can_lock(tmp_path)
        with pytest.raises(LogDirectoryError, match=r"\(triolog, process"):
            DirectoryLock.acquire(str(tmp_path))
        assert not kafka_can_lock(tmp_path)
    with held(str(tmp_path)):
        pass
    assert kafka_can_lock(tmp_path)


def test_a_directory_that_kafka_holds_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD_AS_KAFKA, str(tmp_path / LOCK_FILE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(LogDirectoryError, match="Kafka or triolog"):
            DirectoryLock.acquire(str(tmp_path))
        holder.stdin.close()
    DirectoryLock.acquire(str(tmp_path)).release()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no locks of open files")
def test_linux_has_locks_of_open_files() -> None:
    assert log_directory._OPEN_FILE_LOCK == fcntl.F_OFD_SETLK
