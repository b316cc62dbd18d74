"""The bounds that make appends wait: places in a partition's mailbox, and space on the device of its log directory.

A `Mailbox` has many senders, and one receiver that takes all that waits (group commit). It limits commands and bytes.
Reaching a limit makes senders wait, in the order they came; that wait is the backpressure of a partition. trio's memory
channel counts items only and hands them over one at a time.

A `Room` is the space that logs may still take before the next check of their device. The guard of the disks (`logs.disk_guard`)
checks free space from time to time, and a fast producer fills a device in between. So the guard grants the space that it found:
every append takes its bytes from the grant of its log directory, in memory, before it is written. When the grant falls below a
mark, the append requests another check without waiting. An append that does not fit waits for a check that begins after its
request. A check may free space. Where it does not, the append is refused, before the device would be full. Without a guard, and
while it does not run, space is unlimited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Final, Generic, TypeVar

import attrs
import trio

T = TypeVar("T")

MAX_COMMANDS: Final = 1024
MAX_BYTES: Final = 32 * 1024 * 1024


class MailboxClosedError(Exception):
    """The owner takes no more."""


@attrs.define(eq=False, repr=False)
class Mailbox(Generic[T]):
    """Senders put, the owner takes. At least one command is let in whatever its size."""

    max_commands: int = MAX_COMMANDS
    max_bytes: int = MAX_BYTES
    _items: deque[tuple[T, int]] = attrs.field(factory=deque)
    _bytes: int = 0
    _closed: bool = False
    _waiting: dict[trio.lowlevel.Task, tuple[T, int]] = attrs.field(factory=dict)
    """What senders wait with, in the order they came. `take` moves it in, so nobody who comes later can be first."""
    _taker: trio.lowlevel.Task | None = None
    """The owner, while it waits for an item."""
    _filled: Callable[[], None] | None = None
    """Called instead of waking an owner that waits: see `put_off`."""

    def __len__(self) -> int:
        return len(self._items)

    def _has_room(self, size: int) -> bool:
        return not self._items or (len(self._items) < self.max_commands and self._bytes + size <= self.max_bytes)

    def try_put(self, item: T, size: int) -> bool:
        """Put an item in if there is room and nobody waits before us. Raises MailboxClosedError."""
        if self._closed:
            raise MailboxClosedError
        items = self._items
        is_first = not items
        if self._waiting:
            return False
        # What `_has_room` answers, without its call.
        if not is_first and (len(items) >= self.max_commands or self._bytes + size > self.max_bytes):
            return False
        items.append((item, size))
        self._bytes += size
        if is_first and self._taker is not None:  # who comes behind it comes with it
            (self._filled or self.wake)()
        return True

    async def put(self, item: T, size: int) -> None:
        """Put an item in, waiting for room. Cancelled: it was not put in. Raises MailboxClosedError."""
        if self.try_put(item, size):
            return
        task = trio.lowlevel.current_task()
        self._waiting[task] = item, size

        def leave(_: object) -> trio.lowlevel.Abort:
            del self._waiting[task]
            self._let_in()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)
        if self._waiting.pop(task, None) is not None:
            raise MailboxClosedError

    def _put(self, item: T, size: int) -> None:
        self._items.append((item, size))
        self._bytes += size
        if self._taker is not None:
            (self._filled or self.wake)()

    def put_off(self, filled: Callable[[], None]) -> None:
        """Have `filled` called when an item comes in while the owner waits, who is not woken by it: it takes what there is
        without its task, or calls `wake`."""
        self._filled = filled

    def wake(self) -> None:
        """Let the owner take what there is, if it waits for something."""
        if self._taker is not None:
            trio.lowlevel.reschedule(self._taker)
            self._taker = None

    def try_take(self, max_bytes: int) -> deque[tuple[T, int]] | None:
        """All that waits, with its size, where the owner waits too: what it is about to take is its own. None where it does
        not, where nothing waits, and where there is more than `max_bytes`."""
        if self._taker is None or not self._items or self._bytes > max_bytes:
            return None
        taken, self._items, self._bytes = self._items, deque(), 0
        if self._waiting:
            self._let_in()
        return taken

    def put_back(self, items: Iterable[tuple[T, int]]) -> None:
        """Put items in before all others, room or not: they were there already."""
        for item, size in reversed(list(items)):
            self._items.appendleft((item, size))
            self._bytes += size

    async def take(self, max_commands: int, max_bytes: int) -> list[T]:
        """Wait for an item, then take all that wait, up to the limits but at least one. Empty: closed and drained."""
        while not self._items:
            if self._closed:
                return []
            await self._item_or_end()
        taken: list[T] = []
        taken_bytes = 0
        while self._items and len(taken) < max_commands:
            item, size = self._items[0]
            if taken and taken_bytes + size > max_bytes:
                break
            self._items.popleft()
            taken.append(item)
            taken_bytes += size
        self._bytes -= taken_bytes
        self._let_in()
        return taken

    async def _item_or_end(self) -> None:
        assert self._taker is None, "a mailbox has one owner"

        def leave(_: object) -> trio.lowlevel.Abort:
            self._taker = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._taker = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(leave)

    def _let_in(self) -> None:
        while self._waiting and not self._closed:
            task, (item, size) = next(iter(self._waiting.items()))
            if not self._has_room(size):
                return
            del self._waiting[task]
            self._put(item, size)
            trio.lowlevel.reschedule(task)

    def close(self) -> None:
        """Take no more; what is in stays to be taken, waiting senders get MailboxClosedError. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        for task in self._waiting:
            trio.lowlevel.reschedule(task)
        self.wake()


FILE_BLOCK_BYTES: Final = 4096
"""What a write may take beyond its bytes: the blocks of its files are taken whole."""
ROLL_BYTES: Final = 6 * FILE_BLOCK_BYTES
"""The blocks for the small files of a roll, one for each: three indexes, two of producers, and `derived.json`."""


@attrs.define(eq=False, repr=False)
class Room:
    """The grant of one log directory. Owner: the trio thread; appends take, the guard grants."""

    _rooms: Rooms
    left_bytes: float = inf
    _waiting: int = 0
    """What all wait for who have asked since the last grant."""
    _ask_below: float = -inf
    _taken: int = 0
    """Since the last look began: it may have been looked at already, or not yet."""
    _in_flight: int = 0
    """Taken, and not known to be in the files."""
    _looks_begun: int = 0
    _look_granted: int = 0
    _is_exhausted: bool = False
    _granted: trio.Event = attrs.field(factory=trio.Event)

    def has(self, size: int) -> bool:
        """Return whether `size` bytes can be written now."""
        return size + FILE_BLOCK_BYTES <= self.left_bytes

    def take(self, size: int) -> None:
        """So many bytes are about to be written; `done` follows, whatever comes of it."""
        self._in_flight += size + FILE_BLOCK_BYTES
        self.wrote(size)

    def wrote(self, size: int) -> None:
        """So many bytes were written on the spot."""
        size += FILE_BLOCK_BYTES
        self._taken += size
        self.left_bytes -= size
        if self.left_bytes < self._ask_below:
            self._ask_below = -inf  # once for each look
            self._rooms.ask()

    def done(self, size: int) -> None:
        """They are in the files, or will not be."""
        self._in_flight -= size + FILE_BLOCK_BYTES

    async def wait_for(self, size: int) -> bool:
        """Wait until there is room for so many bytes. False: none can be made."""
        while not self.has(size):
            asked = self._looks_begun
            self._waiting += size + FILE_BLOCK_BYTES
            self._rooms.ask()
            while self._look_granted <= asked and not self.has(size):
                await self._granted.wait()
            if self._is_exhausted:
                break
        return self.has(size)

    @property
    def wanted_bytes(self) -> int:
        """Return the bytes that appends will take and the files do not have yet, if an append waits; else 0."""
        return self._waiting and self._waiting + self._in_flight

    @property
    def taken_bytes(self) -> int:
        """Return the bytes that may have been written since the last check began."""
        return self._taken

    def begin_look(self) -> None:
        """The device is looked at from now on."""
        self._looks_begun += 1
        self._taken = self._in_flight

    def grant(self, left_bytes: float, *, ask_below: float, is_exhausted: bool) -> None:
        """The look is done: so many bytes may be written, but for what was taken meanwhile. `is_exhausted`: more was wanted,
        and no room could be made."""
        self.left_bytes = left_bytes - self._taken
        self._ask_below, self._is_exhausted = ask_below, is_exhausted
        self._look_granted, self._waiting = self._looks_begun, 0
        granted, self._granted = self._granted, trio.Event()
        granted.set()

    def open(self) -> None:
        """Nobody looks at this directory, so there is always room."""
        self.begin_look()
        self.grant(inf, ask_below=-inf, is_exhausted=False)


@attrs.define(eq=False, repr=False)
class Rooms:
    """The rooms of all log directories, by path."""

    _rooms: dict[str, Room] = attrs.field(factory=dict)
    _asked: trio.Event = attrs.field(factory=trio.Event)

    def of(self, path: str) -> Room:
        """The room of a log directory."""
        room = self._rooms.get(path)
        if room is None:
            room = self._rooms[path] = Room(self)
        return room

    def ask(self) -> None:
        """Let somebody look."""
        self._asked.set()

    async def asked(self) -> None:
        """Wait until a look is asked for."""
        await self._asked.wait()
        self._asked = trio.Event()

    def open_others(self, paths: set[str]) -> None:
        """Nobody looks at any but these."""
        for path, room in self._rooms.items():
            if path not in paths and room.left_bytes < inf:
                room.open()
