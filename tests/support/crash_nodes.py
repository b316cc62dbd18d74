"""What is in a file and in a directory of `CrashFileSystem`, and what of it a power cut leaves.

A file has what was written and what of that was synced, with every change in between. Zeros at its end take no memory, so
that an index which is preallocated at 10 MiB costs as little as on a real disk.
"""

from __future__ import annotations

import mmap
import random
import weakref
from collections.abc import Iterator
from typing import Final

import attrs

SECTORS_PER_PAGE: Final = 8
ZERO_PAGES: Final = 64
"""So many pages of a run of zeros are chosen from, which changes nothing but where a seed leads; the rest has one version."""
UNMAPPED: Final = 0xDB
"""What a map shows behind the end of a file that was cut: the kernel would kill the reader a page later."""


class Size(int):
    """A change of size, where a write is bytes."""


Change = tuple[int, bytes] | Size


@attrs.define(eq=False)
class Content:
    """The bytes of a file: `data`, and behind it zeros up to `size`."""

    data: bytearray = attrs.field(factory=bytearray)
    size: int = 0

    def copy(self) -> Content:
        return Content(self.data[:], self.size)

    def read(self, position: int, size: int) -> bytes:
        stop = min(position + size, self.size)
        return bytes(self.data[position:stop]).ljust(stop - position, b"\0")

    def page(self, number: int, page_bytes: int) -> bytes:
        return bytes(self.data[number * page_bytes : (number + 1) * page_bytes]).ljust(page_bytes, b"\0")

    def apply(self, change: Change) -> None:
        if isinstance(change, Size):
            del self.data[change:]
            self.size = int(change)
            return
        position, data = change
        if data:
            self.data.extend(bytes(max(0, position - len(self.data))))
            self.data[position : position + len(data)] = data
            self.size = max(self.size, position + len(data))


@attrs.define(eq=False)
class File:
    """A file. What write-back failed on is clean in the cache and not on the device, until the page is dropped or cut off and
    then written again. (Where a page only is written again, ext4 writes the bytes and may leave their extent marked unwritten,
    which reads as zeros from the next mount on.)"""

    content: Content = attrs.field(factory=Content)
    base: Content = attrs.field(factory=Content)
    """The content when the last sync ended, well or not. A value: it is replaced and never changed."""
    changes: list[Change] = attrs.field(factory=list)
    """Everything done to `base` since, in order."""
    lost: dict[int, list[bytes]] = attrs.field(factory=dict)
    """Of each page of `base` that is not known to be on the device: what may be there, the last that certainly was first."""
    lost_sizes: list[int] = attrs.field(factory=list)
    """The same of its size; empty while that is known."""
    error: int = 0
    errors: int = 0
    """How often write-back has failed, as the kernel counts it (errseq)."""
    error_seen: bool = True
    views: list[weakref.ref[mmap.mmap]] = attrs.field(factory=list)

    @classmethod
    def after_cut(cls, content: Content) -> File:
        """A file of which all is on the device."""
        return cls(content=content.copy(), base=content)

    def copy(self) -> File:
        """The same file without its maps."""
        lost = {number: candidates[:] for number, candidates in self.lost.items()}
        sizes, seen = self.lost_sizes[:], self.error_seen
        return File(self.content.copy(), self.base, self.changes[:], lost, sizes, self.error, self.errors, seen)

    def change(self, change: Change) -> None:
        start, stop = _touched(self.content.size, change)
        self.content.apply(change)
        self.changes.append(change)
        if self.views:
            self._show(start, stop)

    def map(self, size: int) -> memoryview:
        view = mmap.mmap(-1, size)
        view[: len(self.content.data)] = self.content.data[:size]
        self.views.append(weakref.ref(view))
        return memoryview(view).toreadonly()

    def sync(self, page_bytes: int) -> None:
        """What was written since the last time goes to the device, but for pages that failed before: they may or may not."""
        if not self.changes:
            return
        written = self._written_pages(page_bytes)
        cut_at = min((int(change) for change in self.changes if isinstance(change, Size)), default=None)
        self.base = self.content.copy()
        self.changes.clear()
        reached = min(self.base.size, (max(written, default=-1) + 1) * page_bytes)
        if cut_at is not None or reached == self.base.size:
            self.lost_sizes.clear()
        self.lost_sizes = [max(size, reached) for size in self.lost_sizes]
        for number in list(self.lost):
            if cut_at is not None and number * page_bytes >= cut_at:
                del self.lost[number]
            elif number in written:
                self.lost[number].append(self.content.page(number, page_bytes))

    def fail_write_back(self, error: int, page_bytes: int) -> None:
        """What was written since the last time is clean from now on and may be on the device or not; whoever has the file
        open is told once."""
        self.error, self.error_seen = error, False
        self.errors += 1
        versions, sizes = self._versions(self.base, page_bytes)
        for number in self._written_pages(page_bytes):
            self.lost.setdefault(number, []).extend(versions[number])
        if self.lost_sizes or len(set(sizes)) > 1:
            self.lost_sizes += sizes
        self.base = self.content.copy()
        self.changes.clear()

    def sample_error(self) -> int:
        """Up to which error a descriptor that is opened now counts as told: an error that nobody has seen is still news."""
        return self.errors if self.error_seen else -1

    def drop_caches(self, rng: random.Random, page_bytes: int) -> None:
        """Forget pages that are clean: reading them gives what the device has."""
        dirty = self._written_pages(page_bytes)
        for number in [number for number in self.lost if number not in dirty]:
            self._forget_page(number, rng.choice(self.lost.pop(number)), page_bytes)

    def forget(self, start: int, stop: int | None, page_bytes: int) -> None:
        """Forget all whole pages in [start, stop), dirty ones once they were written back: of those that failed before, the
        device has what it had then."""
        reaches_end = stop is None or stop >= self.content.size
        for number in list(self.lost):
            if number * page_bytes >= start and (reaches_end or (number + 1) * page_bytes <= (stop or 0)):
                self._forget_page(number, self.lost.pop(number)[0], page_bytes)

    def _forget_page(self, number: int, page: bytes, page_bytes: int) -> None:
        start = number * page_bytes
        self.base = self.base.copy()
        for content in (self.base, self.content):
            content.apply((start, page[: max(0, min(page_bytes, content.size - start))]))
        self._show(start, min(start + page_bytes, self.content.size))

    def _written_pages(self, page_bytes: int) -> set[int]:
        return {
            number
            for change in self.changes
            if not isinstance(change, Size)
            for number in range(change[0] // page_bytes, -(-(change[0] + len(change[1])) // page_bytes))
        }

    def durable(self, page_bytes: int) -> Content:
        """What is on the device for sure."""
        content = self.base.copy()
        for number, candidates in self.lost.items():
            content.apply((number * page_bytes, candidates[0]))
        content.apply(Size(self.lost_sizes[0] if self.lost_sizes else self.base.size))
        return content

    def survivor(self, rng: random.Random, page_bytes: int) -> Content:
        """Content after a power cut."""
        device = self._on_device(rng, page_bytes)
        if not self.changes:
            return device
        match rng.randrange(4):
            case 0:
                return device
            case 1:
                return self.content.copy()
            case 2:
                return self._up_to_some_moment(device, rng)
            case _:
                return self._page_by_page(device, rng, page_bytes)

    def with_hole(self, page_bytes: int) -> Content:
        """Content after a power cut that takes the first of several pages that have changed, and nothing else."""
        device = self.durable(page_bytes)
        changed = sorted(self._versions(device, page_bytes)[0])
        content = self.content.copy()
        if len(changed) > 1:
            start = changed[0] * page_bytes
            content.apply((start, device.page(changed[0], page_bytes)[: max(0, content.size - start)]))
        return content

    def _on_device(self, rng: random.Random, page_bytes: int) -> Content:
        """What the device has of `base`."""
        if not self.lost and not self.lost_sizes:
            return self.base
        if rng.random() < 0.25:
            return self.durable(page_bytes)
        content = self.base.copy()
        for number, candidates in self.lost.items():
            content.apply((number * page_bytes, rng.choice(candidates)))
        content.apply(Size(rng.choice(self.lost_sizes) if self.lost_sizes else self.base.size))
        return content

    def _up_to_some_moment(self, device: Content, rng: random.Random) -> Content:
        content = device.copy()
        moment = rng.randrange(len(self.changes))
        for change in self.changes[:moment]:
            content.apply(change)
        torn = self.changes[moment]
        if not isinstance(torn, Size):
            position, data = torn
            content.apply((position, data[: rng.randint(0, len(data))]))
        return content

    def _page_by_page(self, device: Content, rng: random.Random, page_bytes: int) -> Content:
        versions, sizes = self._versions(device, page_bytes)
        size = rng.choice(sizes)
        result = device.copy()
        for number, candidates in versions.items():
            chosen = rng.randrange(len(candidates))
            kept = candidates[chosen]
            if chosen and rng.random() < 0.25:
                torn_at = rng.randrange(SECTORS_PER_PAGE) * (page_bytes // SECTORS_PER_PAGE)
                kept = kept[:torn_at] + candidates[chosen - 1][torn_at:]
            result.apply((number * page_bytes, kept))
        result.apply(Size(size))
        return result

    def _versions(self, device: Content, page_bytes: int) -> tuple[dict[int, list[bytes]], list[int]]:
        """Every page that has changed, as the device has it and as it was behind each change, and every size."""
        content = self.base.copy()
        sizes = [device.size]
        versions: dict[int, list[bytes]] = {}

        for change in self.changes:
            start, stop = _touched(content.size, change)
            if isinstance(change, Size):
                stop = min(stop, max(start, len(content.data)) + ZERO_PAGES * page_bytes)
            numbers = range(start // page_bytes, -(-stop // page_bytes))
            for number in numbers:
                versions.setdefault(number, [device.page(number, page_bytes)])
            content.apply(change)
            sizes.append(content.size)
            for number in numbers:
                versions[number].append(content.page(number, page_bytes))
        return versions, sizes

    def _show(self, start: int, stop: int) -> None:
        """Let the living maps show what has changed of [start, stop)."""
        views = [view for view in (reference() for reference in self.views) if view is not None]
        self.views = [weakref.ref(view) for view in views]
        for view in views:
            shown = max(0, min(stop, len(view)) - start)
            found = self.content.read(start, shown)
            view[start : start + shown] = found + bytes([UNMAPPED]) * (shown - len(found))


def _touched(size: int, change: Change) -> tuple[int, int]:
    """The bytes [start, stop) that a change gives to a file of `size`."""
    if isinstance(change, Size):
        return min(size, change), max(size, change)
    position, data = change
    return min(size, position), position + len(data)


@attrs.define(eq=False)
class Directory:
    entries: dict[str, Node] = attrs.field(factory=dict)
    synced: dict[str, Node] = attrs.field(factory=dict)
    changes: list[dict[str, Node | None]] = attrs.field(factory=list)

    def change(self, change: dict[str, Node | None]) -> None:
        _apply_names(self.entries, change)
        self.changes.append(change)

    def sync(self) -> None:
        self.synced = dict(self.entries)
        self.changes.clear()

    def survivor(self, rng: random.Random) -> dict[str, Node]:
        if rng.random() < 0.5:
            changes = self.changes[: rng.randint(0, len(self.changes))]
        else:
            changes = [change for change in self.changes if rng.random() < 0.5]
        entries = dict(self.synced)
        for change in changes:
            _apply_names(entries, change)
        return entries


Node = File | Directory


def _apply_names(entries: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def listed(directory: Directory, path: str) -> Iterator[tuple[str, bytes]]:
    """Every file and directory below, as paths and contents."""
    for name, node in sorted(directory.entries.items()):
        if isinstance(node, File):
            yield f"{path}{name}", node.content.read(0, node.content.size)
        else:
            yield f"{path}{name}/", b""
            yield from listed(node, f"{path}{name}/")


def files_below(directory: Directory) -> Iterator[File]:
    """Every file below, in the order of the names; one that has several comes once."""
    return (node for node in nodes_below(directory) if isinstance(node, File))


def nodes_below(directory: Directory) -> Iterator[Node]:
    """The directory, and every file and directory below, in the order of the names; a file that has several comes once."""
    seen: set[int] = set()
    pending: list[Node] = [directory]
    while pending:
        node = pending.pop()
        if isinstance(node, Directory):
            pending += [child for _, child in sorted(node.entries.items(), reverse=True)]
        if id(node) not in seen:
            seen.add(id(node))
            yield node


def copied(root: Directory) -> Directory:
    """A directory with all that is below it and all that a power cut could still bring back."""
    copies: dict[int, Node] = {}

    def copy(node: Node) -> Node:
        found = copies.get(id(node))
        if found is None and isinstance(node, File):
            found = copies[id(node)] = node.copy()
        elif found is None:
            assert isinstance(node, Directory)
            found = copies[id(node)] = Directory()
            found.entries = {name: copy(child) for name, child in list(node.entries.items())}  # other threads go on
            found.synced = {name: copy(child) for name, child in list(node.synced.items())}
            found.changes = [{name: child and copy(child) for name, child in change.items()} for change in list(node.changes)]
        return found

    result = copy(root)
    assert isinstance(result, Directory)
    return result


def survivor(root: Directory, rng: random.Random | None, page_bytes: int, *, holes: bool = False) -> Directory:
    """What a power cut leaves of a directory and of all that is below it; None: what it leaves for sure, and nothing else.
    `holes`: all names, and all contents but for `with_hole`."""
    survivors: dict[int, Node] = {}

    def survive(node: Node) -> Node:
        if id(node) not in survivors:
            if isinstance(node, File):
                content = node.with_hole(page_bytes) if holes else None
                content = content or (node.survivor(rng, page_bytes) if rng else node.durable(page_bytes))
                survivors[id(node)] = File.after_cut(content)
            else:
                left = node.entries if holes else node.survivor(rng) if rng else node.synced
                entries = {name: survive(child) for name, child in sorted(left.items())}
                survivors[id(node)] = Directory(entries=entries, synced=dict(entries))
        return survivors[id(node)]

    result = survive(root)
    assert isinstance(result, Directory)
    return result
