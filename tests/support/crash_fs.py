"""A file system in memory that knows what a power cut would leave of it.

File content is on the device after `sync`, names (creations, renames, deletions) after `sync_directory` of their directory.
`crash` gives the file system after a power cut: what was synced is there; of every unsynced change anything may be. A file
keeps what a disk could have: the changes up to some moment, the last of them torn, or each page as it was at some moment,
torn between sectors, never written pages as zeros, with any size that the file had meanwhile. A directory keeps its changes
up to some moment, or any of them; a rename happens or does not.

Failures are ordered with `fail_next`, a power cut in the middle of things with `cut_after`. A sync that fails does what Linux
does: the pages are clean from then on and not on the device, reads still show them, later syncs succeed and do not bring them
there. A page has to be dropped from the cache (`forget`) and written again; writing it again alone may help or not. Every
descriptor that was open is told of the failure by its next sync, once; one that is opened later only if nobody was told before
(`lib/errseq.c`). `drop_caches` forgets clean pages, as the kernel may at any time. Names and cut sizes are metadata, which a
journal keeps or stops over: a failed `sync_directory` leaves names unsynced, and the next one that succeeds takes them along.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

import attrs
from triolog.protocol.types import Bytes
from triolog.server.storage.disk.filesystem import CREATE, FileSystem

from tests.support import crash_nodes

PAGE_BYTES: Final = 4096

CHANGING: Final = frozenset(
    {
        "open",
        "write",
        "truncate",
        "allocate",
        "sync",
        "rename",
        "link",
        "unlink",
        "make_directory",
        "remove_directory",
        "sync_directory",
        "sync_all",
    }
)
"""Operations between which `cut_after` can cut."""


@attrs.define
class _Descriptor:
    file: crash_nodes.File
    writable: bool
    told: int
    """The last error of write-back that this descriptor was told of (see File.errors)."""


class PowerCut(BaseException):
    """The machine is off. Not an Exception: no handler in the code under test outlives it."""


@attrs.define
class _Failure:
    error: int
    skip: int
    after_bytes: int | None


class WholeCrashSync:
    """All of the file system, however few syncs it stands for. After a failure it is not asked again."""

    def __init__(self, fs: CrashFileSystem) -> None:
        self._fs = fs
        self._told = sum(file.errors for file in crash_nodes.files_below(fs._root))

    def sync_instead(self, syncs: int) -> bool:
        try:
            return self._fs.sync_all() == self._told
        except OSError:
            self._told = -1
            return False

    def close(self) -> None:
        """Nothing is open."""


F = TypeVar("F", bound=Callable[..., Any])


def whole(operation: F) -> F:
    """Operations of all threads run one at a time. A copy taken during a write of another thread would be a state that never
    existed: the second of two writes, without the first."""

    @functools.wraps(operation)
    def alone(self: CrashFileSystem, *arguments: Any, **options: Any) -> Any:
        with self._lock:
            return operation(self, *arguments, **options)

    return cast(F, alone)


class CrashFileSystem:
    """`FileSystem` in memory. `/` is there; paths are absolute."""

    def __init__(self, *, page_bytes: int = PAGE_BYTES) -> None:
        if page_bytes < crash_nodes.SECTORS_PER_PAGE or page_bytes % crash_nodes.SECTORS_PER_PAGE:
            raise ValueError(f"a page of {page_bytes} bytes is not {crash_nodes.SECTORS_PER_PAGE} sectors")
        self._page_bytes = page_bytes
        self.free = 2**40
        """What `free_bytes` answers; writes do not change it."""
        self._root = crash_nodes.Directory()
        self._open: dict[int, _Descriptor] = {}
        self._next_fd = 3
        self._failures: dict[str, list[_Failure]] = {}
        self._changes_left: int | None = None
        self._off = False
        self._moments: list[CrashFileSystem] | None = None
        self._lock = threading.RLock()

    @whole
    def crash(self, rng: random.Random | None, *, holes: bool = False) -> CrashFileSystem:
        """The file system after a power cut now. This one is off from then on. None: one that takes all that it may, or, with
        `holes`, the first page of each file that has changed in several, and nothing else."""
        self._off = True
        after = self._another()
        after._root = crash_nodes.survivor(self._root, rng, self._page_bytes, holes=holes)
        return after

    def moments(self) -> list[CrashFileSystem]:
        """A list that takes a copy of this file system in front of every changing operation from now on.

        `moments()[n].crash` is what `cut_after(n)` and `crash` give, without doing again what led there.
        """
        self._moments = []
        return self._moments

    def _another(self) -> CrashFileSystem:
        """An empty one, of the kind that is to be there after this one."""
        return CrashFileSystem(page_bytes=self._page_bytes)

    @whole
    def copy(self) -> CrashFileSystem:
        """The same files and names, synced or not, and the same chances; nothing of it is open, nothing is ordered."""
        copy = self._another()
        copy.free = self.free
        copy._root = crash_nodes.copied(self._root)
        return copy

    @whole
    def tree(self) -> dict[str, bytes]:
        """Every file by its path with what a read of it would give, every directory with a slash behind its name."""
        return dict(crash_nodes.listed(self._root, "/"))

    def cut_after(self, changes: int | None) -> None:
        """Switch the machine off after so many more changing operations: the next one raises PowerCut. None: never."""
        self._changes_left = changes

    def fail_next(self, operation: str, error: int, *, skip: int = 0, after_bytes: int | None = None) -> None:
        """Let `operation` (a method's name) raise OSError `error` once, after `skip` calls that succeed.

        For `write`, `after_bytes`: so many more bytes are still taken, over as many calls as that takes; a call that
        wants more writes what fits and fails, as on a device that fills up.
        """
        self._failures.setdefault(operation, []).append(_Failure(error, skip, after_bytes))

    def fail_write_back(self, path: str, error: int = errno.EIO) -> None:
        """The kernel writes the file back by itself, and fails: the next sync of whoever has it open says so."""
        self._file(path).fail_write_back(error, self._page_bytes)

    def drop_caches(self, rng: random.Random) -> None:
        """Every clean page is forgotten: what no sync brought to the device reads as what is there."""
        for file in crash_nodes.files_below(self._root):
            file.drop_caches(rng, self._page_bytes)

    def end_process(self) -> None:
        """The process is gone and its descriptors are closed. What it wrote is in the cache; what was ordered is forgotten."""
        self._open.clear()
        self.forget_failures()

    def forget_failures(self) -> bool:
        """Take back what `fail_next` ordered and did not happen; whether there was something."""
        left = any(self._failures.values())
        self._failures.clear()
        return left

    @property
    def is_off(self) -> bool:
        """Whether the power was cut: nothing works any more."""
        return self._off

    @property
    def open_descriptors(self) -> int:
        return len(self._open)

    def content(self, path: str) -> bytes:
        content = self._file(path).content
        return content.read(0, content.size)

    def durable_content(self, path: str) -> bytes | None:
        """What of the file is on the device for sure, None when its name is not. An unsynced parent is not looked at."""
        directory, name = self._parent(path)
        node = directory.synced.get(name)
        if not isinstance(node, crash_nodes.File):
            return None
        durable = node.durable(self._page_bytes)
        return durable.read(0, durable.size)

    @property
    def writes_at_once(self) -> bool:
        return True

    @property
    def is_instant(self) -> bool:
        return True

    @property
    def is_dead(self) -> bool:
        return False

    @whole
    def open(self, path: str, flags: int) -> int:
        self._enter("open")
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if isinstance(node, crash_nodes.Directory):
            raise _os_error(errno.EISDIR, path)
        if node is None:
            if not flags & os.O_CREAT:
                raise _os_error(errno.ENOENT, path)
            node = crash_nodes.File()
            directory.change({name: node})
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise _os_error(errno.EEXIST, path)
        if flags & os.O_TRUNC and node.content.size:
            node.change(crash_nodes.Size(0))
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._open[fd] = _Descriptor(node, bool(flags & (os.O_RDWR | os.O_WRONLY)), node.sample_error())
        return fd

    def close(self, fd: int) -> None:
        if self._open.pop(fd, None) is None:
            raise _os_error(errno.EBADF, fd)

    def size(self, fd: int) -> int:
        self._enter("size")
        return self._by_fd(fd).content.size

    def read(self, fd: int, size: int, position: int) -> bytes:
        self._enter("read")
        return self._by_fd(fd).content.read(position, size)

    def read_cached(self, fd: int, size: int, position: int) -> Bytes | None:
        data = self.read(fd, size, position)
        return data if len(data) == size else None

    @whole
    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        data = b"".join(buffers)
        failure = self._enter("write", len(data))
        taken = len(data) if failure is None else min(len(data), failure.after_bytes or 0)
        if taken:
            self._by_fd(fd, writing=True).change((position, data[:taken]))
        if failure is not None:
            raise _os_error(failure.error, f"write of {len(data)} bytes, {taken} were taken")

    @whole
    def truncate(self, fd: int, size: int) -> None:
        self._enter("truncate")
        self._by_fd(fd, writing=True).change(crash_nodes.Size(size))

    @whole
    def allocate(self, fd: int, size: int) -> None:
        self._enter("allocate")
        file = self._by_fd(fd, writing=True)
        if size > file.content.size:
            file.change(crash_nodes.Size(size))

    @whole
    def sync(self, fd: int) -> None:
        file = self._by_fd(fd)
        try:
            self._enter("sync")
        except OSError as exc:
            file.fail_write_back(exc.errno or errno.EIO, self._page_bytes)
        else:
            file.sync(self._page_bytes)
        descriptor = self._open[fd]
        if descriptor.told != file.errors:
            descriptor.told, file.error_seen = file.errors, True
            raise _os_error(file.error, "sync")

    @whole
    def forget(self, fd: int, start: int, stop: int | None = None) -> None:
        self._enter("forget")
        self._by_fd(fd).forget(start, stop, self._page_bytes)

    def forget_clean(self, fd: int, start: int, stop: int | None = None) -> None:
        self.forget(fd, start, stop)

    def whole_sync(self, path: str) -> WholeCrashSync:
        return WholeCrashSync(self)

    @whole
    def sync_all(self) -> int:
        """Every file and every name goes to the device. Answers how many failures of write-back there were."""
        self._enter("sync_all")
        errors = 0
        for node in crash_nodes.nodes_below(self._root):
            if isinstance(node, crash_nodes.File):
                node.sync(self._page_bytes)
                errors += node.errors
            else:
                node.sync()
        return errors

    def restrict(self, fd: int) -> None:
        """There are no users here."""

    def map(self, fd: int, size: int) -> Bytes:
        self._enter("map")
        file = self._by_fd(fd)
        if not 0 < size <= file.content.size:
            raise ValueError(f"cannot map {size} bytes of a file of {file.content.size}")
        return file.map(size)

    @whole
    def rename(self, source: str, target: str) -> None:
        self._enter("rename")
        directory, name = self._parent(source)
        target_directory, target_name = self._parent(target)
        if target_directory is not directory:
            raise _os_error(errno.EXDEV, target)
        node = directory.entries.get(name)
        if node is None:
            raise _os_error(errno.ENOENT, source)
        replaced = directory.entries.get(target_name)
        if isinstance(replaced, crash_nodes.Directory) and (replaced.entries or isinstance(node, crash_nodes.File)):
            raise _os_error(errno.ENOTEMPTY if replaced.entries else errno.EISDIR, target)
        if name != target_name:
            directory.change({name: None, target_name: node})

    @whole
    def link(self, source: str, target: str) -> None:
        self._enter("link")
        file = self._file(source)
        directory, name = self._parent(target)
        if name in directory.entries:
            raise _os_error(errno.EEXIST, target)
        directory.change({name: file})

    @whole
    def unlink(self, path: str) -> None:
        self._enter("unlink")
        self._file(path)
        directory, name = self._parent(path)
        directory.change({name: None})

    def list_directory(self, path: str) -> list[str]:
        self._enter("list_directory")
        return sorted(self._directory(path).entries)

    def is_directory(self, path: str) -> bool:
        self._enter("is_directory")
        return isinstance(self._find(path), crash_nodes.Directory)

    def file_size(self, path: str) -> int | None:
        self._enter("file_size")
        node = self._find(path)
        return node.content.size if isinstance(node, crash_nodes.File) else None

    def modified_ms(self, path: str) -> int:
        """Where the clocks of tests start, whatever was written since: this file system has no clock of its own."""
        self._enter("modified_ms")
        self._file(path)
        return 1_700_000_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._enter("set_modified_ms")
        self._file(path)

    def free_bytes(self, path: str) -> int:
        self._enter("free_bytes")
        self._directory(path)
        return self.free

    def total_bytes(self, path: str) -> int:
        self._enter("total_bytes")
        self._directory(path)
        return self.free

    @whole
    def make_directory(self, path: str) -> None:
        self._enter("make_directory")
        directory = self._root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                node = crash_nodes.Directory()
                directory.change({name: node})
            if isinstance(node, crash_nodes.File):
                raise _os_error(errno.ENOTDIR, path)
            directory = node

    @whole
    def remove_directory(self, path: str) -> None:
        self._enter("remove_directory")
        if self._directory(path).entries:
            raise _os_error(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        parent.change({name: None})

    @whole
    def sync_directory(self, path: str) -> None:
        self._enter("sync_directory")
        self._directory(path).sync()

    def _enter(self, operation: str, size: int = 0) -> _Failure | None:
        """Every operation starts here. Raises what is due; answers the failure of a write, which writes a part first."""
        if operation in CHANGING:
            if self._moments is not None:
                self._moments.append(self.copy())
            if self._changes_left is not None:
                if self._changes_left == 0:
                    self._off = True
                self._changes_left -= 1
        if self._off:
            raise PowerCut(operation)
        due = self._failures.get(operation)
        if not due:
            return None
        failure = due[0]
        if failure.skip:
            failure.skip -= 1
            return None
        if failure.after_bytes is not None and size <= failure.after_bytes:
            failure.after_bytes -= size
            return None
        del due[0]
        if operation == "write":
            return failure
        raise _os_error(failure.error, operation)

    def _by_fd(self, fd: int, *, writing: bool = False) -> crash_nodes.File:
        descriptor = self._open.get(fd)
        if descriptor is None or (writing and not descriptor.writable):
            raise _os_error(errno.EBADF, fd)
        return descriptor.file

    def _find(self, path: str) -> crash_nodes.Node | None:
        node: crash_nodes.Node | None = self._root
        for name in _names(path):
            if not isinstance(node, crash_nodes.Directory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: str) -> crash_nodes.Directory:
        node = self._find(path)
        if not isinstance(node, crash_nodes.Directory):
            raise _os_error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node

    def _file(self, path: str) -> crash_nodes.File:
        node = self._find(path)
        if not isinstance(node, crash_nodes.File):
            raise _os_error(errno.ENOENT if node is None else errno.EISDIR, path)
        return node

    def _parent(self, path: str) -> tuple[crash_nodes.Directory, str]:
        *parents, name = _names(path)
        node = self._root
        for parent in parents:
            child = node.entries.get(parent)
            if not isinstance(child, crash_nodes.Directory):
                raise _os_error(errno.ENOENT if child is None else errno.ENOTDIR, path)
            node = child
        return node, name


def distinct(moments: Iterable[CrashFileSystem]) -> list[CrashFileSystem]:
    """Without those that hold what the one before holds."""
    return [next(alike) for _, alike in itertools.groupby(moments, CrashFileSystem.tree)]


@functools.lru_cache(maxsize=4096)
def _names(path: str) -> tuple[str, ...]:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not absolute")
    return tuple(name for name in path.split("/") if name)


def _os_error(error: int, what: object) -> OSError:
    return OSError(error, f"{os.strerror(error)}: {what}")


def put(fs: FileSystem, path: str, content: bytes) -> None:
    """Let a file have that content."""
    fd = fs.open(path, CREATE)
    try:
        fs.truncate(fd, 0)
        if content:
            fs.write(fd, [content], 0)
    finally:
        fs.close(fd)


def logs_of(fs: CrashFileSystem) -> dict[str, bytes]:
    """Content of every segment's log by its path."""
    return {path: content for path, content in fs.tree().items() if path.endswith(".log")}
