"""Files of staged record batches: what writers have sent and nobody may read before it is committed. Blocks; run in a thread.

    <log directory>/.stage/<application>-<version>/<task>.<partition>

Application, task and partition are the first 32 hex digits of the SHA-256 of their names, which may be of any length and hold
any character; the topic's id goes with the partition's name, so that nothing staged for a deleted topic is ever found for
another topic with its name. A file is record batches as the topic's configuration wants them, base offset 0, no producer, one
behind the other, in the log directory that holds the partition: it may be hard to read when, and only when, the partition is.

Nothing here is synced before a commit; what a crash leaves of a file is compared with the size and CRC that its writer knows.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ...protocol.errors import CorruptRecordError, InvalidRequestError
from ...protocol.records.batch import BatchHeader, check_batch, crc32c, parse_header, with_producer
from ...protocol.types import Bytes, TopicPartition
from ..storage.disk.diskops import FileHandle, drive
from ..storage.disk.filesystem import CREATE, FileSystem, read_at, sync_file
from ..storage.disk.paths import STAGE_DIRECTORY
from ..storage.disk.write_again import write_file_again
from ..storage.indexes.file_records import FileSlice

READ_BYTES: Final = 1 << 20
OPEN_ATTEMPTS: Final = 10
COPIED_AT_ONCE: Final = 100
SEQUENCES: Final = 1 << 31
"""Sequences run from 0 to 2^31 - 1 and start again."""


class StagedBytes(NamedTuple):
    """The size of a file and the CRC-32C of its bytes."""

    size_bytes: int
    crc: int


class StagedRecords(NamedTuple):
    """The totals of a file's batches."""

    records_count: int
    largest_batch_bytes: int


class StagedChunk(NamedTuple):
    """Some batches of a file, stamped with their producer, and where the next ones start."""

    batches: tuple[tuple[BatchHeader, bytearray], ...]
    position: int
    next_record: int
    """Number of the next record in the partition's share of the commit."""


def stage_name(application: str, version: int) -> str:
    """The directory of a version's files."""
    return f"{_digest(application)}-{version}"


def version_of(name: str) -> int | None:
    """The version in the name of a stage's directory; None when it is no such name."""
    _, dash, version = name.partition("-")
    return int(version) if dash and version.isascii() and version.isdigit() else None


def task_prefix(task: str) -> str:
    """Return the prefix of the names of a task's files."""
    return f"{_digest(task)}."


def file_name(task: str, topic_partition: TopicPartition, topic_id: uuid.UUID | None) -> str:
    """The file of what a task has staged for a partition of the topic with that id; None: as earlier versions named it."""
    return f"{task_prefix(task)}{_digest(str(topic_partition) if topic_id is None else f'{topic_partition} {topic_id}')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def find_staged(fs: FileSystem, directory: str) -> Iterator[tuple[str, str, int]]:
    """(name of the stage, path, size) of every staged file in a log directory. Raises OSError."""
    root = f"{directory}/{STAGE_DIRECTORY}"
    if not fs.is_directory(root):
        return
    for name in fs.list_directory(root):
        for file in fs.list_directory(f"{root}/{name}") if fs.is_directory(f"{root}/{name}") else ():
            path = f"{root}/{name}/{file}"
            yield name, path, fs.file_size(path) or 0


def append_staged(fs: FileSystem, path: str, before: StagedBytes | None, batches: Sequence[Bytes]) -> StagedBytes:
    """Put batches behind what is there, which is looked at first when `before` is None; answers what is there then.

    What lies there although nothing should is written over. Raises OSError; the file then ends where it did before, if the
    device allows.
    """
    if before is None:
        before = measure_staged(fs, path)
    if not batches:
        return before
    fd = _open_staged(fs, path, CREATE if before.size_bytes else CREATE | os.O_TRUNC)
    try:
        fs.write(fd, batches, before.size_bytes)
    except OSError:
        with suppress(OSError):
            fs.truncate(fd, before.size_bytes)
        raise
    finally:
        fs.close(fd)
    size, crc = before
    for batch in batches:
        size, crc = size + len(batch), crc32c(batch, crc)
    return StagedBytes(size, crc)


def _open_staged(fs: FileSystem, path: str, flags: int) -> int:
    """In a directory that is made if need be: it goes with its last file, maybe right after it was made."""
    for _ in range(OPEN_ATTEMPTS):
        try:
            return fs.open(path, flags)
        except FileNotFoundError:
            fs.make_directory(path.rpartition("/")[0])
    return fs.open(path, flags)


def measure_staged(fs: FileSystem, path: str) -> StagedBytes:
    """Size and CRC of a file; of none: 0 and 0. Raises OSError."""
    size, crc = fs.file_size(path) or 0, 0
    for position in range(0, size, READ_BYTES):
        crc = crc32c(read_at(fs, path, position, READ_BYTES), crc)
    return StagedBytes(size, crc)


def check_staged(fs: FileSystem, path: str, expected: StagedBytes, what: str) -> StagedRecords:
    """Read a file whole. Raises InvalidRequestError when it is not there or has another size, CorruptRecordError when its bytes
    are others than the writer was told, OSError."""
    size = fs.file_size(path)
    if size is None:
        raise InvalidRequestError(
            f"{what} is not staged, or not any more. Stage it again under another task, or call last_commit to "
            "see the committed state"
        )
    if size != expected.size_bytes:
        raise InvalidRequestError(
            f"{what} has {size} bytes staged, the commit names {expected.size_bytes}. Stage it again under another task"
        )
    found = measure_staged(fs, path)
    if found != expected:
        raise CorruptRecordError(
            f"{what} has {found.size_bytes} bytes with CRC {found.crc:#010x} staged in {path}, the commit names "
            f"{expected.crc:#010x}. Stage it again under another task"
        )
    records = largest = 0

    def see(header: BatchHeader, position: int) -> None:
        nonlocal records, largest
        records += header.records_count
        largest = max(largest, header.size_bytes)

    end = drive(fs, FileSlice(FileHandle(path), 0, size).visit_headers(see))
    if end != size:
        raise CorruptRecordError(f"{what} has a batch staged in {path} that is cut off at {end} of {size} bytes")
    return StagedRecords(records, largest)


def sync_staged(
    fs: FileSystem, directory: str, name: str, paths: Sequence[str], doubtful: Mapping[str, StagedBytes] | None = None
) -> None:
    """Force files of a stage in one log directory, and their names, to the device. What a sync may have failed on before is
    `doubtful`, and written again. Raises CorruptRecordError, OSError."""
    for path in paths:
        if doubtful and path in doubtful and write_file_again(fs, path) != doubtful[path]:
            raise CorruptRecordError(f"{path} no longer has the staged bytes. Stage it again under another task")
        sync_file(fs, path)
    fs.sync_directory(f"{directory}/{STAGE_DIRECTORY}/{name}")
    fs.sync_directory(f"{directory}/{STAGE_DIRECTORY}")
    fs.sync_directory(directory)


def read_stamped(
    fs: FileSystem,
    path: str,
    start: int,
    end: int,
    *,
    producer_id: int,
    producer_epoch: int,
    next_record: int,
    first_record: int,
    max_bytes: int,
) -> StagedChunk:
    """Batches from position `start`, which holds record number `next_record`, to `end`, about `max_bytes` of them; those below
    record number `first_record` are passed over. Each gets the producer, its epoch and the sequence of its number.

    Raises CorruptRecordError when the bytes are not those that were staged, OSError.
    """
    batches: list[tuple[BatchHeader, bytearray]] = []
    size = 0

    def take(header: BatchHeader, position: int, batch: memoryview) -> bool:
        nonlocal next_record, size
        if size and size + header.size_bytes > max_bytes:
            return False
        if next_record >= first_record:
            check_batch(batch, header)
            stamped = with_producer(batch, producer_id, producer_epoch, next_record % SEQUENCES)
            batches.append((parse_header(stamped), stamped))
            size += header.size_bytes
        next_record += header.records_count
        return True

    position = drive(fs, FileSlice(FileHandle(path), start, end).visit_batches(take))
    if position == start:
        raise CorruptRecordError(f"{path} has no whole batch at {start} of {end} bytes")
    return StagedChunk(tuple(batches), position, next_record)


def copy_staged(
    fs: FileSystem, files: Sequence[tuple[str, int]], target: str, is_wanted: Callable[[int], bool]
) -> tuple[StagedBytes, int]:
    """Copy batches of files (path and size) into a new one, those of whose first record's number `is_wanted` says so; answers
    what is there then and how many records that are. Raises CorruptRecordError when the bytes are not those that were staged,
    OSError."""
    copied, copied_records, number = StagedBytes(0, 0), 0, 0
    waiting: list[bytes] = []

    def flush() -> None:
        nonlocal copied
        copied = append_staged(fs, target, copied, waiting)
        waiting.clear()

    def take(header: BatchHeader, _: int, batch: memoryview) -> bool:
        nonlocal number, copied_records
        if is_wanted(number):
            check_batch(batch, header)
            waiting.append(bytes(batch))
            copied_records += header.records_count
            if sum(map(len, waiting)) >= READ_BYTES or len(waiting) == COPIED_AT_ONCE:
                flush()
        number += header.records_count
        return True

    for path, size in files:
        if drive(fs, FileSlice(FileHandle(path), 0, size).visit_batches(take)) != size:
            raise CorruptRecordError(f"{path} has no whole batches up to {size} bytes")
    flush()
    return copied, copied_records


def unlink_staged(fs: FileSystem, paths: Sequence[str]) -> None:
    """Delete files, and their directories when nothing is left in them. Raises OSError."""
    for path in paths:
        with suppress(FileNotFoundError):
            fs.unlink(path)
    for directory in {path.rpartition("/")[0] for path in paths}:
        with suppress(OSError):  # which refuses what is not empty
            fs.remove_directory(directory)
