"""A log directory: its lock, its identity, its checkpoints, its partitions (Kafka: LogManager, MetaPropertiesEnsemble).

Everything here blocks and is run in a thread while nobody else touches the directory's own files.

| OSError | is | then |
|---|---|---|
| no space, quota, no descriptors, no memory, interrupted | passing | what was asked for fails, it can be tried again |
| all others: EIO, EROFS, ENOTDIR, EACCES, ENOENT ... | the device's or the mount's | the directory goes out of service |

The lock on a log directory, held for the life of the process: of the directory, and of `.lock` in it (Kafka: FileLock).

| lock | on | keeps out |
|---|---|---|
| `flock` | the directory | a second triolog, in the same process too, and when somebody has removed `.lock` |
| `flock` | `.lock`, on Linux | the same where directories have no locks (NFS) |
| record lock | `.lock` | Kafka, which takes that one |

A process loses its record locks when it closes *any* descriptor of the file. On Linux the record lock therefore belongs to the
open file and not to the process. Elsewhere `HELD` has the directories that this process holds: nothing here opens their `.lock`
a second time. There is no `flock` on `.lock` there either: on BSDs both kinds of lock exclude each other. The holder writes who
it is into the file, for the message that a second one gets. (This file bypasses the file-system seam: a lock is the kernel's.)
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
import sys
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Self

import attrs

from ....protocol.types import TopicPartition
from ...system.block_devices import WholeSync
from ..disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    META_PROPERTIES_REMEDY,
    OWN_BROKER_EPOCH,
    RECOVERY_POINT_FILE,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_offsets,
    decode_uuid,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
    maybe_read,
    random_uuid,
    read_small,
    without_partitions,
)
from ..disk.filesystem import CREATE, FileSystem, open_file, open_regular, replace_file, write_pieces
from ..disk.paths import CLUSTER_METADATA_TOPIC, DELETE_DIR_SUFFIX, IGNORED_DIRECTORIES, is_marked, parse_partition_directory
from ..errors import CheckpointError, LogDirectoryError, StorageError, is_out_of_space
from .state_files import read_state, write_state
from .topics_file import (
    CREATIONS_FILE,
    TOPICS_FILE,
    Creation,
    Topic,
    decode_deleted_topic_ids,
    decode_topics,
    encode_creations,
    encode_topics,
    read_creations,
)

LOGGER: Final = logging.getLogger(__name__)

PROBE_FILE: Final = ".triolog-probe"
WATCHDOG_FILE: Final = ".triolog-watchdog"
_PASSING: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.EFBIG}
)
_NOT_OURS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS})
"""EINVAL: file systems that cannot sync a directory, such as some that others are mounted on."""

_EMPTY_MEANS: Final = {
    RECOVERY_POINT_FILE: "so more than needed is recovered",
    HIGH_WATERMARK_FILE: "so nothing is held against the recovery points",
    LOG_START_FILE: "so each partition's log start offset comes from its derived.json",
}


def is_passing(error: OSError) -> bool:
    """Return whether the same call may succeed a moment later, so that the directory is not to blame."""
    return error.errno in _PASSING


@attrs.frozen
class Offsets:
    """The offsets of one partition in a log directory's checkpoints."""

    recovery_point: int
    high_watermark: int
    log_start_offset: int
    first_base_offset: int
    """Where the records start that are on disk; also those that a power cut could still bring back."""


@attrs.frozen(kw_only=True)
class Contents:
    """The contents of a log directory when the server starts."""

    generation: int
    """Of its topics.json, 0 when it has none."""
    topics: list[Topic]
    deleted_topic_ids: set[uuid.UUID]
    """Of topics that were deleted while a log directory was out of service."""
    partitions: dict[TopicPartition, str]
    """Path of each partition."""
    doomed: dict[str, TopicPartition]
    """Partitions on their way out, by path."""
    stray: list[str]
    """Paths of what Kafka put aside (`-stray`) or was copying (`-future`)."""
    creations: list[Creation]
    """What was being made when the server ended."""


@attrs.define(eq=False, repr=False)
class LogDirectory:
    """A locked directory. Owner: the log manager."""

    fs: FileSystem
    path: str
    durable: bool
    """False: nothing here outlives the process, so small files are not synced."""
    lock: DirectoryLock
    whole_sync: WholeSync | None = None
    """Where all of the device can be synced at once."""
    ignores_case: bool = False
    """Whether the file system takes names that differ only in upper and lower case for one, as macOS does by default."""
    was_clean: bool = False
    stopped_here: bool = False
    """Whether that was a stop of this program. (A Kafka without ZooKeeper has a broker epoch, which it writes down.)"""
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: uuid.UUID | None = None
    recovery_points: dict[TopicPartition, int] = attrs.field(factory=dict)
    high_watermarks: dict[TopicPartition, int] = attrs.field(factory=dict)
    log_start_offsets: dict[TopicPartition, int] = attrs.field(factory=dict)
    topics_generation: int = 0
    """Of the topics.json that is here for sure."""
    newest_topics_generation: int = 0
    """Of the newest topics.json that may be here: where the last of its steps failed."""
    _has_creations: bool = False
    _unwritten_identity: bytes | None = None
    """What is to be in meta.properties and found no space."""
    _written: dict[str, bytes] = attrs.field(factory=dict)

    @classmethod
    def open(cls, fs: FileSystem, path: str, *, durable: bool) -> Self:
        """Make the directory if need be, lock it, and read what it remembers. The clean marker is not looked at yet.

        Raises LogDirectoryError or CheckpointError, and OSError when the directory cannot be used.
        """
        fs.make_directory(path)
        directory = cls(fs, path, durable, DirectoryLock.acquire(path))
        try:
            directory.ignores_case = fs.file_size(f"{path}/{LOCK_FILE.upper()}") is not None
            if durable:
                directory.whole_sync = fs.whole_sync(path)
            directory._read_identity()
            if durable and directory.directory_id is None:
                _sync_names_above(fs, path)
            directory.recovery_points = directory._read_offsets(RECOVERY_POINT_FILE)
            directory.high_watermarks = directory._read_offsets(HIGH_WATERMARK_FILE)
            directory.log_start_offsets = directory._read_offsets(LOG_START_FILE)
        except BaseException:
            directory.close()
            raise
        return directory

    def _read_identity(self) -> None:
        path = f"{self.path}/{META_PROPERTIES_FILE}"
        fields = maybe_read(self.fs, path, decode_meta_properties) or {}
        self.cluster_id = fields.get("cluster.id")
        node_id = fields.get("node.id", fields.get("broker.id"))
        try:
            self.node_id = None if node_id is None else int(node_id)
            self.directory_id = decode_uuid(fields["directory.id"]) if "directory.id" in fields else None
        except ValueError as exc:
            raise CheckpointError(f"cannot read {path}: {exc}. {META_PROPERTIES_REMEDY}") from exc

    def settle_identity(self, cluster_id: str, node_id: int, source: Mapping[str, str] | None = None) -> None:
        """Take on the server's identity, or refuse: a directory belongs to one cluster and one node. `source`: where each value
        of the identity is from."""
        for name, found, expected in (("cluster.id", self.cluster_id, cluster_id), ("node.id", self.node_id, node_id)):
            if found is not None and found != expected:
                where = f" by {source[name]}" if source else ""
                raise LogDirectoryError(
                    f"{self.path}/{META_PROPERTIES_FILE} has {name}={found}, this server is {expected}{where}: the "
                    "directory belongs to another server, or one of the two is damaged. Restore the right one from a copy"
                )
        if self.directory_id is not None and self.cluster_id is not None and self.node_id is not None:
            return
        self.cluster_id, self.node_id = cluster_id, node_id
        self.directory_id = self.directory_id or random_uuid()
        self._unwritten_identity = encode_meta_properties(
            cluster_id=cluster_id, node_id=node_id, directory_id=self.directory_id
        )
        try:
            self._write_identity()
        except OSError as exc:
            if not is_out_of_space(exc):
                raise
            LOGGER.warning("%s: the owner of the directory is written once space is free: %s", self.path, exc)

    def _write_identity(self) -> None:
        if self._unwritten_identity is not None:
            self._write(META_PROPERTIES_FILE, self._unwritten_identity)
            self._unwritten_identity = None

    def take_clean_marker(self) -> bool:
        """Return whether the last stop was clean, and remove the marker. It is removed from the device too, before anything is
        loaded: if it came back after a power cut, damage would go unnoticed."""
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        self.was_clean = self.fs.file_size(path) is not None
        if self.was_clean:
            with contextlib.suppress(OSError, StorageError):  # that it is there is what counts
                marker = read_small(self.fs, path)
                self.stopped_here = decode_clean_shutdown(marker) == OWN_BROKER_EPOCH
            self.fs.unlink(path)
        if self.durable:  # also for names whose sync has failed in the last run
            self.fs.sync_directory(self.path)
        return self.was_clean

    def mark_clean(self) -> None:
        self._write(CLEAN_SHUTDOWN_FILE, encode_clean_shutdown())

    def recovery_point_of(self, topic_partition: TopicPartition) -> int:
        """Up to where a log was promised to be on the device. What nobody may read was promised to nobody: a high watermark
        below it is its second witness, without which a damaged digit would be a loss of offsets."""
        recovery_point = self.recovery_points.get(topic_partition, 0)
        high_watermark = self.high_watermarks.get(topic_partition, recovery_point)
        if high_watermark < recovery_point:
            LOGGER.log(
                logging.WARNING if self.stopped_here else logging.INFO,  # in a Kafka of several brokers it may be so
                "%s: %s/%s records the end offset %d, %s records %d: using the smaller one",
                topic_partition,
                self.path,
                RECOVERY_POINT_FILE,
                recovery_point,
                HIGH_WATERMARK_FILE,
                high_watermark,
            )
        return min(recovery_point, high_watermark)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        try:
            return maybe_read(self.fs, f"{self.path}/{name}", decode_offsets) or {}
        except (CheckpointError, ValueError) as exc:
            LOGGER.warning("%s: treating it as empty, %s", exc, _EMPTY_MEANS[name])
            return {}

    def write_checkpoints(self, offsets: Mapping[TopicPartition, Offsets]) -> None:
        """Put the three offset checkpoints in place, where they differ from what is there. A log start offset is listed
        only while records below it are still on disk. What found no space at the start comes first. Raises FileNotFoundError
        when the directory is gone: what is written into files without a name is lost at the next start."""
        if not self.fs.is_directory(self.path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        self._write_identity()
        self._write(HIGH_WATERMARK_FILE, encode_offsets({tp: each.high_watermark for tp, each in offsets.items()}))
        self._write(RECOVERY_POINT_FILE, encode_offsets({tp: each.recovery_point for tp, each in offsets.items()}))
        starts = {tp: each.log_start_offset for tp, each in offsets.items() if each.log_start_offset > each.first_base_offset}
        self._write(LOG_START_FILE, encode_offsets(starts))

    def forget_offsets(self, topic: str, numbers: range) -> None:
        """Remove partitions from every offset checkpoint, in memory and on the device: when their topic is deleted, and again
        before a new topic takes their names.

        A checkpoint names partitions, not topic ids: an entry that a deleted topic left would cut or trim the log of the next
        topic with its name. A checkpoint that cannot be read stays: the next start ignores all of it. Raises OSError.
        """
        for known in (self.recovery_points, self.high_watermarks, self.log_start_offsets):
            for number in numbers:
                known.pop(TopicPartition(topic, number), None)
        for name in (*_EMPTY_MEANS, CLEANER_OFFSET_FILE):
            path = f"{self.path}/{name}"
            with contextlib.suppress(FileNotFoundError, CheckpointError, ValueError):
                data = read_small(self.fs, path)
                if (kept := without_partitions(path, data, topic, numbers)) != data:
                    self._write(name, kept)

    def known_offsets(self, topic_partition: TopicPartition) -> Offsets:
        """Return the checkpointed offsets of a partition that could not be opened, as of the opening of the directory. They
        must not be lost."""
        recovery_point = self.recovery_points.get(topic_partition, 0)
        return Offsets(recovery_point, recovery_point, self.log_start_offsets.get(topic_partition, 0), 0)

    def _write(self, name: str, data: bytes) -> None:
        if self._written.get(name) != data:
            replace_file(self.fs, f"{self.path}/{name}", data, durable=self.durable)
            self._written[name] = data

    def contents(self) -> Contents:
        """Return the contents of the directory. Raises CheckpointError, OSError, and LogDirectoryError for a directory that
        does not belong to a partition."""
        found = self._read_topics()
        for name in self.fs.list_directory(self.path):
            path = f"{self.path}/{name}"
            if name in IGNORED_DIRECTORIES or not self.fs.is_directory(path):
                continue
            try:
                topic_partition = parse_partition_directory(name)
            except LogDirectoryError as exc:
                raise LogDirectoryError(f"{self.path}: {exc}") from exc
            if topic_partition.topic == CLUSTER_METADATA_TOPIC:
                continue
            if name.endswith(DELETE_DIR_SUFFIX):
                found.doomed[path] = topic_partition
            elif is_marked(name):
                found.stray.append(path)
            else:
                found.partitions[topic_partition] = path
        return found

    def _read_topics(self) -> Contents:
        """Return the contents of topics.json; generation 0 and no topics without the file. Raises CheckpointError."""
        generation, topics, deleted = read_state(self.fs, f"{self.path}/{TOPICS_FILE}", _decode_all) or (0, [], set())
        self.topics_generation = generation
        return Contents(
            generation=generation,
            topics=topics,
            deleted_topic_ids=deleted,
            partitions={},
            doomed={},
            stray=[],
            creations=self._read_creations(),
        )

    def _read_creations(self) -> list[Creation]:
        self._has_creations = True
        try:
            return read_creations(self.fs, self.path, self.topics_generation)
        except CheckpointError as exc:
            LOGGER.warning("%s: adopting unfinished topics with the default configuration", exc)
            return []

    def write_topics(self, generation: int, topics: list[Topic], deleted_topic_ids: Iterable[uuid.UUID] = ()) -> None:
        self.newest_topics_generation = generation
        data = encode_topics(generation, topics, deleted_topic_ids)
        write_state(self.fs, f"{self.path}/{TOPICS_FILE}", data, durable=self.durable)
        self.topics_generation = generation

    def write_creations(self, creations: Sequence[Creation]) -> None:
        """Put down what is being made from now on; it is on the device when this returns. That there is nothing need not be."""
        path = f"{self.path}/{CREATIONS_FILE}"
        if creations:
            self._has_creations = True
            replace_file(self.fs, path, encode_creations(self.topics_generation, creations), durable=self.durable)
        elif self._has_creations:
            with contextlib.suppress(FileNotFoundError):
                self.fs.unlink(path)
            self._has_creations = False

    def sync_names(self) -> None:
        """Let the partitions that are here now outlive a power cut, and those that are gone be gone."""
        if self.durable:
            self.fs.sync_directory(self.path)

    def sync_all_instead(self, syncs: int) -> bool:
        """Sync the whole device in place of `syncs` single syncs. Return False when the caller has to do each of them
        instead."""
        return not self.durable or (self.whole_sync is not None and self.whole_sync.sync_instead(syncs))

    def probe(self) -> None:
        """Write, sync and delete a small file. Raises the OSError that says the directory cannot be used."""
        path = f"{self.path}/{PROBE_FILE}"
        replace_file(self.fs, path, b"", durable=self.durable)
        self.fs.unlink(path)

    def feed_watchdog(self, now_ms: int) -> None:
        """Write the time over the few bytes of a file that stays, and force it to the device: one block, and with `fdatasync`
        no journal. Raises the OSError that says the directory cannot be used."""
        write_pieces(self.fs, f"{self.path}/{WATCHDOG_FILE}", CREATE, [b"%020d\n" % now_ms])

    def free_bytes(self) -> int:
        return self.fs.free_bytes(self.path)

    def total_bytes(self) -> int:
        return self.fs.total_bytes(self.path)

    def close(self) -> None:
        self.lock.release()
        if self.whole_sync is not None:
            self.whole_sync.close()
            self.whole_sync = None


def _decode_all(path: str, data: bytes) -> tuple[int, list[Topic], set[uuid.UUID]]:
    return *decode_topics(path, data), decode_deleted_topic_ids(path, data)


def _sync_names_above(fs: FileSystem, path: str) -> None:
    """Force the name of a new directory to the device, and those of directories that may have been made for it. Who may not
    read one has not made what is in it."""
    above = os.path.dirname(os.path.abspath(path))
    while True:
        try:
            fs.sync_directory(above)
        except OSError as exc:
            if exc.errno not in _NOT_OURS:
                raise
        if above == os.path.dirname(above):
            return
        above = os.path.dirname(above)


_OPEN_FILE_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform == "linux" else None
"""None elsewhere, also where the kernel has such locks: `struct flock` has another layout there."""
_WHOLE_FILE: Final = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""`struct flock` of Linux: type, whence, start, length (0: to the end), process (0 is demanded of a lock of an open file)."""
HELD: Final[dict[tuple[int, int], int]] = {}
"""The process that holds a directory, by device and inode: this one, or the one that this one was forked from."""
_NO_LOCK: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Where directories cannot be locked: NFS turns `flock` into a record lock, for which a file has to be open for writing."""


@attrs.define(eq=False, repr=False)
class DirectoryLock:
    """A lock that is held until `release`."""

    path: str
    _fd: int
    _directory_fd: int
    _identity: tuple[int, int]

    @classmethod
    def acquire(cls, directory: str) -> Self:
        """Lock a directory. Raises LogDirectoryError naming the holder when someone has it, OSError when it cannot be."""
        path = f"{directory}/{LOCK_FILE}"
        with contextlib.ExitStack() as on_failure:
            directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            on_failure.callback(os.close, directory_fd)
            identity = _identity_of(directory_fd)
            with _saying_who(directory, path):
                if _loses_locks_of(identity):
                    raise BlockingIOError
                _lock_directory(directory_fd)
            fd = open_file(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            on_failure.callback(os.close, fd)
            with _saying_who(directory, path):
                _lock_file(fd)
            _sign(fd)
            on_failure.pop_all()
        HELD[identity] = os.getpid()
        lock = cls(path, fd, directory_fd, identity)
        _LOCKS.add(lock)
        return lock

    def release(self) -> None:
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
        self.close_copies()
        HELD.pop(self._identity, None)

    def close_copies(self) -> None:
        """Close the descriptors. In a forked process they are copies, which would hold the lock after the end of the parent."""
        descriptors = (self._fd, self._directory_fd)
        self._fd = self._directory_fd = -1
        for each in descriptors:
            if each >= 0:
                os.close(each)


def _forked() -> None:
    for each in list(_LOCKS):
        each.close_copies()


_LOCKS: Final[weakref.WeakSet[DirectoryLock]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)


@contextlib.contextmanager
def _saying_who(directory: str, path: str) -> Iterator[None]:
    """Let a lock that is refused be a LogDirectoryError with the holder's name, as far as it can be told."""
    try:
        yield
    except (BlockingIOError, PermissionError) as exc:
        said = b""
        with contextlib.suppress(OSError):
            is_own = _loses_locks_of(_identity_of(directory))
            said = f"triolog, process {os.getpid()}".encode() if is_own else _said(path)
        holder = said.decode("utf-8", "replace").strip() or "Kafka or triolog"
        raise LogDirectoryError(
            f"another server ({holder}) holds the lock of log directory {directory}. Stop it first, or choose another directory"
        ) from exc


def holder_of(directory: str) -> str | None:
    """Return the process that has locked a directory, in the words of its `.lock`; None without one. This takes no lock. Raises
    OSError."""
    path = f"{directory}/{LOCK_FILE}"
    try:
        if _loses_locks_of(_identity_of(directory)):
            return f"triolog, process {os.getpid()}"
        fd = open_regular(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        said = os.pread(fd, 200, 0).decode("utf-8", "replace").strip()
        if _OPEN_FILE_LOCK is not None:
            kind = struct.unpack_from("h", fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _WHOLE_FILE))[0]
            return None if kind == fcntl.F_UNLCK else said or "Kafka or triolog"
        return said or None
    finally:
        os.close(fd)


def _identity_of(directory: str | int) -> tuple[int, int]:
    found = os.stat(directory)
    return found.st_dev, found.st_ino


def _loses_locks_of(identity: tuple[int, int]) -> bool:
    """Return whether this process would lose its record lock on a directory's `.lock` if it closed that file once more."""
    return _OPEN_FILE_LOCK is None and HELD.get(identity) == os.getpid()


def _said(path: str) -> bytes:
    fd = open_regular(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, 200, 0)
    finally:
        os.close(fd)


def _lock_directory(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno not in _NO_LOCK:
            raise


def _sign(fd: int) -> None:
    """Say who holds it. On a full device it says nothing: the lock is the kernel's."""
    os.ftruncate(fd, 0)
    try:
        os.pwrite(fd, f"triolog, process {os.getpid()}\n".encode(), 0)
    except OSError as exc:
        if not is_out_of_space(exc):
            raise


def _lock_file(fd: int) -> None:
    if _OPEN_FILE_LOCK is None:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.fcntl(fd, _OPEN_FILE_LOCK, _WHOLE_FILE)
