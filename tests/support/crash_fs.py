"""A file system in memory that knows what a power cut would leave of it.

File content is on the device after `sync`, names (creations, renames, deletions) after `sync_directory` of their directory.
`crash` gives the file system after a power cut: what was synced is there; of every unsynced change anything may be. A file
keeps what a disk could have: the changes up to some moment, the last of them torn, or each page as it was at some moment,
torn between sectors, never written pages as zeros, with any size that the file had meanwhile. A directory keeps its changes
up to some moment, or any of them; a rename happens or does not.

Failures are ordered with `fail_next`, a power cut in the middle of things with `cut_after`. A file whose sync failed once is
never made durable by a later sync that succeeds: Linux drops the dirty pages and reports the failure only once.
"""

from __future__ import annotations

import errno
import os
import random
import weakref
from collections.abc import Sequence
from typing import Final

import attrs
from triolog.protocol.types import Bytes

PAGE_BYTES: Final = 4096
SECTORS_PER_PAGE: Final = 8
UNMAPPED: Final = 0xDB
"""What a map shows behind the end of a file that was cut: the kernel would kill the reader a page later."""

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
    }
)
"""Operations between which `cut_after` can cut."""


class PowerCut(BaseException):
    """The machine is off. Not an Exception: no handler in the code under test outlives it."""


class _View(bytearray):
    """Content of a map, in an object that can be weakly referenced."""


class _Cut(int):
    """A change of size, where a write is bytes."""


_Change = tuple[int, bytes] | _Cut


@attrs.define(eq=False)
class _File:
    data: bytearray = attrs.field(factory=bytearray)
    synced: bytes = b""
    changes: list[_Change] = attrs.field(factory=list)
    """Everything done to `synced` since, in order."""
    sync_failed: bool = False
    views: list[weakref.ref[_View]] = attrs.field(factory=list)

    def change(self, change: _Change) -> None:
        _apply(self.data, change)
        self.changes.append(change)
        for view in self._living_views():
            shown = self.data[: len(view)]
            view[:] = shown + bytes([UNMAPPED]) * (len(view) - len(shown))

    def map(self, size: int) -> memoryview:
        view = _View(self.data[:size])
        self.views.append(weakref.ref(view))
        return memoryview(view).toreadonly()

    def sync(self) -> None:
        if not self.sync_failed:
            self.synced = bytes(self.data)
            self.changes.clear()

    def survivor(self, rng: random.Random, page_bytes: int) -> bytes:
        """Content after a power cut."""
        if not self.changes:
            return self.synced
        match rng.randrange(4):
            case 0:
                return self.synced
            case 1:
                return bytes(self.data)
            case 2:
                return self._up_to_some_moment(rng)
            case _:
                return self._page_by_page(rng, page_bytes)

    def _up_to_some_moment(self, rng: random.Random) -> bytes:
        content = bytearray(self.synced)
        moment = rng.randrange(len(self.changes))
        for change in self.changes[:moment]:
            _apply(content, change)
        torn = self.changes[moment]
        if not isinstance(torn, _Cut):
            position, data = torn
            _apply(content, (position, data[: rng.randint(0, len(data))]))
        return bytes(content)

    def _page_by_page(self, rng: random.Random, page_bytes: int) -> bytes:
        content = bytearray(self.synced)
        sizes = [len(content)]
        versions: dict[int, list[bytes]] = {}

        def page(number: int) -> bytes:
            return bytes(content[number * page_bytes : (number + 1) * page_bytes]).ljust(page_bytes, b"\0")

        for change in self.changes:
            start, stop = _touched(len(content), change)
            numbers = range(start // page_bytes, -(-stop // page_bytes))
            for number in numbers:
                versions.setdefault(number, [page(number)])
            _apply(content, change)
            sizes.append(len(content))
            for number in numbers:
                versions[number].append(page(number))
        size = rng.choice(sizes)
        result = bytearray(self.synced)
        for number, candidates in versions.items():
            chosen = rng.randrange(len(candidates))
            kept = candidates[chosen]
            if chosen and rng.random() < 0.25:
                torn_at = rng.randrange(SECTORS_PER_PAGE) * (page_bytes // SECTORS_PER_PAGE)
                kept = kept[:torn_at] + candidates[chosen - 1][torn_at:]
            _apply(result, (number * page_bytes, kept))
        _apply(result, _Cut(size))
        return bytes(result)

    def _living_views(self) -> list[_View]:
        views = [view for view in (reference() for reference in self.views) if view is not None]
        self.views = [weakref.ref(view) for view in views]
        return views


def _apply(content: bytearray, change: _Change) -> None:
    if isinstance(change, _Cut):
        del content[change:]
        content.extend(bytes(change - len(content)))
        return
    position, data = change
    if data:
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data


def _touched(size: int, change: _Change) -> tuple[int, int]:
    """The bytes [start, stop) that a change gives to a file of `size`."""
    if isinstance(change, _Cut):
        return min(size, change), max(size, change)
    position, data = change
    return min(size, position), position + len(data)


@attrs.define(eq=False)
class _Directory:
    entries: dict[str, _Node] = attrs.field(factory=dict)
    synced: dict[str, _Node] = attrs.field(factory=dict)
    changes: list[dict[str, _Node | None]] = attrs.field(factory=list)

    def change(self, change: dict[str, _Node | None]) -> None:
        _apply_names(self.entries, change)
        self.changes.append(change)

    def sync(self) -> None:
        self.synced = dict(self.entries)
        self.changes.clear()

    def survivor(self, rng: random.Random) -> dict[str, _Node]:
        if rng.random() < 0.5:
            changes = self.changes[: rng.randint(0, len(self.changes))]
        else:
            changes = [change for change in self.changes if rng.random() < 0.5]
        entries = dict(self.synced)
        for change in changes:
            _apply_names(entries, change)
        return entries


_Node = _File | _Directory


def _apply_names(entries: dict[str, _Node], change: dict[str, _Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


@attrs.define
class _Failure:
    error: int
    skip: int
    after_bytes: int | None


class CrashFileSystem:
    """`FileSystem` in memory. `/` is there; paths are absolute."""

    def __init__(self, *, page_bytes: int = PAGE_BYTES) -> None:
        if page_bytes < SECTORS_PER_PAGE or page_bytes % SECTORS_PER_PAGE:
            raise ValueError(f"a page of {page_bytes} bytes is not {SECTORS_PER_PAGE} sectors")
        self._page_bytes = page_bytes
        self.free = 2**40
        """What `free_bytes` answers; writes do not change it."""
        self._root = _Directory()
        self._open: dict[int, tuple[_File, bool]] = {}
        self._next_fd = 3
        self._failures: dict[str, list[_Failure]] = {}
        self._changes_left: int | None = None
        self._off = False

    # ---- what tests order --------------------------------------------------------------------------------------------

    def crash(self, rng: random.Random) -> CrashFileSystem:
        """The file system after a power cut now. This one is off from then on."""
        self._off = True
        after = CrashFileSystem(page_bytes=self._page_bytes)
        survivors: dict[int, _Node] = {}

        def survivor(node: _Node) -> _Node:
            if id(node) not in survivors:
                if isinstance(node, _File):
                    content = node.survivor(rng, self._page_bytes)
                    survivors[id(node)] = _File(data=bytearray(content), synced=content)
                else:
                    entries = {name: survivor(child) for name, child in sorted(node.survivor(rng).items())}
                    survivors[id(node)] = _Directory(entries=entries, synced=dict(entries))
            return survivors[id(node)]

        root = survivor(self._root)
        assert isinstance(root, _Directory)
        after._root = root
        return after

    def cut_after(self, changes: int | None) -> None:
        """Switch the machine off after so many more changing operations: the next one raises PowerCut. None: never."""
        self._changes_left = changes

    def fail_next(self, operation: str, error: int, *, skip: int = 0, after_bytes: int | None = None) -> None:
        """Let `operation` (a method's name) raise OSError `error` once, after `skip` calls that succeed.

        For `write`, `after_bytes`: so many more bytes are still taken, over as many calls as that takes; a call that
        wants more writes what fits and fails, as on a device that fills up.
        """
        self._failures.setdefault(operation, []).append(_Failure(error, skip, after_bytes))

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
        """What a read of the whole file would give."""
        return bytes(self._file(path).data)

    def durable_content(self, path: str) -> bytes | None:
        """What of the file is on the device for sure, None when its name is not. An unsynced parent is not looked at."""
        directory, name = self._parent(path)
        node = directory.synced.get(name)
        return node.synced if isinstance(node, _File) else None

    # ---- FileSystem --------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        self._enter("open")
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if isinstance(node, _Directory):
            raise _os_error(errno.EISDIR, path)
        if node is None:
            if not flags & os.O_CREAT:
                raise _os_error(errno.ENOENT, path)
            node = _File()
            directory.change({name: node})
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise _os_error(errno.EEXIST, path)
        if flags & os.O_TRUNC and node.data:
            node.change(_Cut(0))
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._open[fd] = node, bool(flags & (os.O_RDWR | os.O_WRONLY))
        return fd

    def close(self, fd: int) -> None:
        if self._open.pop(fd, None) is None:
            raise _os_error(errno.EBADF, fd)

    def size(self, fd: int) -> int:
        self._enter("size")
        return len(self._by_fd(fd).data)

    def read(self, fd: int, size: int, position: int) -> bytes:
        self._enter("read")
        return bytes(self._by_fd(fd).data[position : position + size])

    def read_cached(self, fd: int, size: int, position: int) -> Bytes | None:
        data = self.read(fd, size, position)
        return data if len(data) == size else None

    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        data = b"".join(buffers)
        failure = self._enter("write", len(data))
        taken = len(data) if failure is None else min(len(data), failure.after_bytes or 0)
        if taken:
            self._by_fd(fd, writing=True).change((position, data[:taken]))
        if failure is not None:
            raise _os_error(failure.error, f"write of {len(data)} bytes, {taken} were taken")

    def truncate(self, fd: int, size: int) -> None:
        self._enter("truncate")
        self._by_fd(fd, writing=True).change(_Cut(size))

    def allocate(self, fd: int, size: int) -> None:
        self._enter("allocate")
        file = self._by_fd(fd, writing=True)
        if size > len(file.data):
            file.change(_Cut(size))

    def sync(self, fd: int) -> None:
        file = self._by_fd(fd)
        try:
            self._enter("sync")
        except OSError:
            file.sync_failed = True
            raise
        file.sync()

    def restrict(self, fd: int) -> None:
        """There are no users here."""

    def map(self, fd: int, size: int) -> Bytes:
        self._enter("map")
        file = self._by_fd(fd)
        if not 0 < size <= len(file.data):
            raise ValueError(f"cannot map {size} bytes of a file of {len(file.data)}")
        return file.map(size)

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
        if isinstance(replaced, _Directory) and (replaced.entries or isinstance(node, _File)):
            raise _os_error(errno.ENOTEMPTY if replaced.entries else errno.EISDIR, target)
        if name != target_name:
            directory.change({name: None, target_name: node})

    def link(self, source: str, target: str) -> None:
        self._enter("link")
        file = self._file(source)
        directory, name = self._parent(target)
        if name in directory.entries:
            raise _os_error(errno.EEXIST, target)
        directory.change({name: file})

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
        return isinstance(self._find(path), _Directory)

    def file_size(self, path: str) -> int | None:
        self._enter("file_size")
        node = self._find(path)
        return len(node.data) if isinstance(node, _File) else None

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

    def make_directory(self, path: str) -> None:
        self._enter("make_directory")
        directory = self._root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                node = _Directory()
                directory.change({name: node})
            if isinstance(node, _File):
                raise _os_error(errno.ENOTDIR, path)
            directory = node

    def remove_directory(self, path: str) -> None:
        self._enter("remove_directory")
        if self._directory(path).entries:
            raise _os_error(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        parent.change({name: None})

    def sync_directory(self, path: str) -> None:
        self._enter("sync_directory")
        self._directory(path).sync()

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _enter(self, operation: str, size: int = 0) -> _Failure | None:
        """Every operation starts here. Raises what is due; answers the failure of a write, which writes a part first."""
        if operation in CHANGING and self._changes_left is not None:
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

    def _by_fd(self, fd: int, *, writing: bool = False) -> _File:
        file, writable = self._open.get(fd, (None, False))
        if file is None or (writing and not writable):
            raise _os_error(errno.EBADF, fd)
        return file

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for name in _names(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise _os_error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node

    def _file(self, path: str) -> _File:
        node = self._find(path)
        if not isinstance(node, _File):
            raise _os_error(errno.ENOENT if node is None else errno.EISDIR, path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        *parents, name = _names(path)
        return self._directory("/" + "/".join(parents)), name


def _names(path: str) -> list[str]:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not absolute")
    return [name for name in path.split("/") if name]


def _os_error(error: int, what: object) -> OSError:
    return OSError(error, f"{os.strerror(error)}: {what}")
