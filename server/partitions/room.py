"""The space that logs may still take before the next check of their device.

The guard checks free space from time to time, and a fast producer fills a device in between. So the guard grants the space that
it found: every append takes its bytes from the grant of its log directory, in memory, before it is written. When the grant
falls below a mark, the append requests another check without waiting. An append that does not fit waits for a check that begins
after its request. A check may free space. Where it does not, the append is refused, before the device would be full.

The guard of the disks, in `manager`, checks and grants. Without a guard, and while it does not run, space is unlimited.
"""

from __future__ import annotations

from math import inf
from typing import Final

import attrs
import trio

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
