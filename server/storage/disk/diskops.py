"""Disk operations: everything storage wants from a disk, as values.

A storage procedure is a generator. Its body runs where the state lives; it *yields* an operation and is sent the result,
or has the operation's OSError thrown in. Who drives it decides where operations run: `drive` here runs them on the spot
(start-up, tools, tests), `partitions.disk` in worker threads. An operation sees descriptors and bytes, never a log.

A procedure that works for long without the disk says so too: where it yields None others may have their turn (as the steps of
`protocol.records.steps`), and what a codec does without the interpreter is an operation, `Compute`.

A `FileHandle` names a file and holds its descriptor while it is open. Only its owner's thread installs or takes away the
descriptor; a handle with a lease is not closed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

import attrs

from ....protocol.types import Bytes
from ..errors import FileGoneError, SnapshotExpiredError, SyncFailedError
from .checkpoints import maybe_read
from .filesystem import CREATE, READ, WRITE, FileSystem, opened, replace_file, sync_file
from .write_again import write_batches_again, write_file_again, write_index_again

_NOT_OPENED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOENT})
"""What no fsync fails with."""


class FileSize(NamedTuple):
    """Answers the size of a file, None when there is none."""

    path: str

    def run(self, fs: FileSystem) -> int | None:
        return fs.file_size(self.path)


class ReadFile(NamedTuple):
    """Answers the bytes of a whole small file, None when there is none. Raises FileTooLargeError."""

    path: str

    def run(self, fs: FileSystem) -> bytes | None:
        return maybe_read(fs, self.path, lambda _, data: data)


class ListDirectory(NamedTuple):
    """Answers the names in a directory."""

    path: str

    def run(self, fs: FileSystem) -> list[str]:
        return fs.list_directory(self.path)


class ModifiedMs(NamedTuple):
    """Answers when the file's content last changed, in ms since the epoch."""

    path: str

    def run(self, fs: FileSystem) -> int:
        return fs.modified_ms(self.path)


class SyncFile(NamedTuple):
    """Forces a file that nobody keeps open to the device; one that is gone is fine. Raises what `Sync` raises, after writing
    the file again, so that the next sync covers it; a checksum in it tells readers whether its content is right."""

    path: str

    def run(self, fs: FileSystem) -> None:
        try:
            sync_file(fs, self.path)
        except FileNotFoundError:
            return
        except OSError as exc:
            if exc.errno in _NOT_OPENED:
                raise
            write_file_again(fs, self.path)
            raise SyncFailedError(exc.errno, exc.strerror, exc.filename or self.path) from exc


class CreateFile(NamedTuple):
    """Makes a new, empty file (a leftover of that name is emptied) and answers its descriptor."""

    path: str
    allocate_bytes: int = 0

    def run(self, fs: FileSystem) -> int:
        fd = fs.open(self.path, CREATE | os.O_TRUNC)
        try:
            if self.allocate_bytes:
                fs.allocate(fd, self.allocate_bytes)
        except BaseException:
            fs.close(fd)
            raise
        return fd


class WriteFile(NamedTuple):
    """Puts a whole small file in place through a temporary one (see filesystem.replace_file)."""

    path: str
    data: bytes
    durable: bool = True

    def run(self, fs: FileSystem) -> None:
        replace_file(fs, self.path, self.data, durable=self.durable)


class WriteFiles(NamedTuple):
    """Puts small files in place one after the other, as `WriteFile` does. `make` builds their bytes where the operation runs,
    because that may take longer than writing them; it works on values that nobody changes."""

    make: Callable[[], Sequence[tuple[str, bytes]]]
    durable: bool = True

    def run(self, fs: FileSystem) -> None:
        for path, data in self.make():
            replace_file(fs, path, data, durable=self.durable)


class Rename(NamedTuple):
    source: str
    target: str

    def run(self, fs: FileSystem) -> None:
        fs.rename(self.source, self.target)


class RenameEach(NamedTuple):
    """Renames the files that are there by putting `suffix` behind their names, in order, and answers the new names."""

    paths: Sequence[str]
    suffix: str

    def run(self, fs: FileSystem) -> list[str]:
        renamed = []
        for path in self.paths:
            try:
                fs.rename(path, path + self.suffix)
            except FileNotFoundError:
                continue
            renamed.append(path + self.suffix)
        return renamed


class LinkEach(NamedTuple):
    """Gives the files `names` of `source` second names in `target`, which is made; those that are not there are passed over.

    A `.log` (the first of its names) that is not there is an error.
    """

    source: str
    target: str
    names: Sequence[str]

    def run(self, fs: FileSystem) -> None:
        fs.make_directory(self.target)
        for name in self.names:
            try:
                fs.link(f"{self.source}/{name}", f"{self.target}/{name}")
            except FileNotFoundError:
                if name.endswith(".log"):
                    raise


class Unlink(NamedTuple):
    """Deletes a file; one that is not there is fine."""

    path: str

    def run(self, fs: FileSystem) -> None:
        try:
            fs.unlink(self.path)
        except FileNotFoundError:
            return


class SyncDirectory(NamedTuple):
    """Forces the names in a directory to the device. Raises SyncFailedError, and another OSError when it cannot be opened."""

    path: str

    def run(self, fs: FileSystem) -> None:
        try:
            fs.sync_directory(self.path)
        except OSError as exc:
            if exc.errno in _NOT_OPENED:
                raise
            raise sync_failed(exc) from exc


def sync_failed(exc: OSError) -> SyncFailedError:
    """The error of a sync that the system refused."""
    return SyncFailedError(exc.errno, exc.strerror, exc.filename)


T = TypeVar("T")
Procedure = Generator["DiskOp | None", Any, T]
"""A storage procedure that answers a T."""


@attrs.define(eq=False, repr=False)
class FileHandle:
    """A file of a segment. `create_bytes`: the size to create the file with, if it is missing when it is opened for writing."""

    path: str
    writable: bool = False
    create_bytes: int | None = None
    fd: int | None = None
    leases: int = 0
    """Reads and writes that rely on the descriptor right now; it is not closed before they are done."""
    used: bool = False
    """Set by whoever works on the file, cleared by the budget of descriptors when it looks for idle ones."""
    is_released: bool = False
    """The file is deleted, or soon will be: it stays open for those alone who read it."""
    cached_reads: bool = True
    """False once the mount refused RWF_NOWAIT."""
    failed_sync: int | None = None
    """errno of a sync that failed. A later sync proves nothing until the bytes are written again, although the kernel lets it
    succeed: it has forgotten what it could not write, and may have reported that to another descriptor."""

    def descriptor(self) -> int:
        assert self.fd is not None, f"{self.path} is not open"
        return self.fd


class Read(NamedTuple):
    """Answers the bytes [position, position + size); fewer only at the end of the file."""

    file: FileHandle
    position: int
    size: int

    def run(self, fs: FileSystem) -> Bytes:
        return fs.read(self.file.descriptor(), self.size, self.position)


class Open(NamedTuple):
    """Opens the handle's file and answers the descriptor; whoever drives installs it.

    Only a file that may be made (`create_bytes`) is made: a log that vanished must not come back empty.
    """

    file: FileHandle

    def run(self, fs: FileSystem) -> int:
        file = self.file
        if not file.writable:
            try:
                return fs.open(file.path, READ)
            except FileNotFoundError as exc:
                raise SnapshotExpiredError(f"{file.path} is gone") from exc
        if file.create_bytes is None:
            try:
                return fs.open(file.path, WRITE)
            except FileNotFoundError as exc:
                raise FileGoneError(f"{file.path} is gone") from exc
        fd = fs.open(file.path, CREATE)
        try:
            if fs.size(fd) != file.create_bytes:
                fs.truncate(fd, file.create_bytes)
        except BaseException:
            fs.close(fd)
            raise
        return fd


class Mapped(Protocol):
    """An index file, filled by a `Map`. `buffer` is None while the file keeps no map."""

    @property
    def path(self) -> str: ...

    file: FileHandle
    buffer: Bytes | None
    used: bool


class Map(NamedTuple):
    """Opens the index file and answers a read-only view of all of it; the descriptor is closed again.

    At least `size` bytes must be there. The view shows what is appended later.
    """

    mapped: Mapped
    size: int

    def run(self, fs: FileSystem) -> Bytes:
        path = self.mapped.path
        try:
            with opened(fs, path) as fd:
                length = fs.size(fd)
                if length < self.size:
                    raise SnapshotExpiredError(f"{path} has {length} bytes, expected {self.size}")
                return fs.map(fd, length)
        except FileNotFoundError as exc:
            raise SnapshotExpiredError(f"{path} is gone") from exc


class Write(NamedTuple):
    file: FileHandle
    position: int
    buffers: Sequence[Bytes]

    def run(self, fs: FileSystem) -> None:
        fs.write(self.file.descriptor(), self.buffers, self.position)


class Truncate(NamedTuple):
    file: FileHandle
    size: int

    def run(self, fs: FileSystem) -> None:
        fs.truncate(self.file.descriptor(), self.size)


class Sync(NamedTuple):
    """Forces a file to the device. Raises SyncFailedError, also when an earlier sync failed; opening the file raises another
    OSError. Whoever runs operations never runs two syncs of one file at once."""

    file: FileHandle

    def run(self, fs: FileSystem) -> None:
        file = self.file
        if file.failed_sync is not None:
            raise SyncFailedError(file.failed_sync, f"{os.strerror(file.failed_sync)} (in an earlier sync)", file.path)
        try:
            fs.sync(file.descriptor())
        except OSError as exc:
            file.failed_sync = exc.errno or errno.EIO
            raise sync_failed(exc) from exc


class WriteBatchesAgain(NamedTuple):
    """Writes the batches in [start, end) of a log that reach `from_offset` again, so that the next sync covers them (see
    `write_again`)."""

    file: FileHandle
    start: int
    end: int
    from_offset: int

    def run(self, fs: FileSystem) -> None:
        file = self.file
        write_batches_again(fs, file.descriptor(), file.path, self.start, self.end, self.from_offset)
        file.failed_sync = None


class WriteIndexAgain(NamedTuple):
    """Writes the first `size` bytes of an index again, so that the next sync covers them. `check` raises CorruptIndexError when
    they are not its entries."""

    file: FileHandle
    size: int
    check: Callable[[Bytes], None]

    def run(self, fs: FileSystem) -> None:
        file = self.file
        write_index_again(fs, file.descriptor(), file.path, self.size, self.check)
        file.failed_sync = None


class Close(NamedTuple):
    fd: int

    def run(self, fs: FileSystem) -> None:
        fs.close(self.fd)


class Compute(NamedTuple):
    """Answers the result of a function that takes long, and releases the GIL for nearly all of that."""

    function: Callable[..., Any]
    args: tuple[Any, ...]

    def run(self, fs: FileSystem) -> Any:
        return self.function(*self.args)


DiskOp = (
    Read
    | Open
    | Map
    | FileSize
    | ReadFile
    | ListDirectory
    | ModifiedMs
    | Write
    | Truncate
    | Sync
    | WriteBatchesAgain
    | WriteIndexAgain
    | SyncFile
    | CreateFile
    | WriteFile
    | WriteFiles
    | Close
    | Rename
    | RenameEach
    | LinkEach
    | Unlink
    | SyncDirectory
    | Compute
)


def execute(fs: FileSystem, operations: Sequence[DiskOp]) -> None:
    """Run operations whose answers nobody needs, in order; the first OSError ends it."""
    for operation in operations:
        operation.run(fs)


def name_file(error: BaseException, operation: DiskOp) -> None:
    """Say in an OSError which file it was: the system knows a descriptor only, people need the name."""
    file = getattr(operation, "file", None)
    if isinstance(error, OSError) and error.filename is None and isinstance(file, FileHandle):
        error.filename = file.path


def compute(procedure: Procedure[T]) -> T:
    """Run a procedure that needs no disk on the spot."""
    return drive(cast(FileSystem, None), procedure)


def drive(fs: FileSystem, procedure: Procedure[T], own: Callable[[FileHandle], FileHandle] | None = None) -> T:
    """Run a procedure on the spot. Files that it reads are opened for the time of the call. `own`: another handle, to be used
    in the place of one that somebody else may be reading through."""
    opened_here: list[FileHandle] = []
    answer: Any = None
    error: BaseException | None = None
    try:
        while True:
            try:
                operation = procedure.send(answer) if error is None else procedure.throw(error)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            answer, error = None, None
            if operation is None:
                continue
            try:
                file = getattr(operation, "file", None)
                if isinstance(file, FileHandle):
                    if own is not None:
                        file = own(file)
                        operation = operation._replace(file=file)  # type: ignore[call-arg]
                    if file.fd is None and not isinstance(operation, Open):
                        file.fd = Open(file).run(fs)
                        opened_here.append(file)
                answer = operation.run(fs)
            except Exception as exc:
                name_file(exc, operation)
                error = exc
    finally:
        for file in opened_here:
            if file.fd is not None:
                fs.close(file.fd)
                file.fd = None
