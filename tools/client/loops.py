"""The parts of an event loop that the client is written against, so that one source serves trio, asyncio and blocking programs.

`trio_loop` has trio's own parts, so the choice costs nothing there; `asyncio_loop` has asyncio's, with scopes and nurseries of
`asyncio_tasks`; `blocking.loop` has its own, for tasks that run only inside a call. Each is imported only where it runs.

Ctrl-C: under trio it interrupts no function that is marked `uninterrupted`; `asyncio.run` turns it into a cancellation of the
main task; in a blocking program it interrupts the call that waits. The client's own tasks continue.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import attrs

from ...protocol.types import Bytes
from .config import Address

F = TypeVar("F", bound=Callable[..., Any])


class Event(Protocol):
    """Something that happens once."""

    def set(self) -> object: ...
    async def wait(self) -> object: ...


class Scope(Protocol):
    """A block that can be cancelled, and is at its deadline. It may be cancelled before it is entered."""

    def cancel(self) -> object: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...
    @property
    def cancelled_caught(self) -> bool: ...


class Tasks(Protocol):
    """Starts tasks, which run until they end or are cancelled."""

    def start_soon(self, function: Callable[..., Awaitable[Any]], /, *arguments: Any) -> object: ...


class Nursery(Tasks, Protocol):
    """A block with tasks. It ends when all of them have ended; the failure of one cancels the others."""

    @property
    def cancel_scope(self) -> Scope: ...


class ParkingLot(Protocol):
    """Tasks that wait for their turn, the first one first."""

    async def park(self) -> None: ...
    def unpark(self) -> object: ...
    def unpark_all(self) -> object: ...


class Stream(Protocol):
    """A connection. Its methods raise an error of `Loop.broken` when it is broken."""

    async def send_all(self, data: Any) -> None: ...
    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray: ...
    async def aclose(self) -> None: ...


class NewScope(Protocol):
    """Makes scopes; the deadline is a time of the loop's clock."""

    def __call__(self, *, deadline: float = ..., shield: bool = ...) -> Scope: ...


@attrs.frozen(kw_only=True)
class Loop:
    """The parts of an event loop that the client uses."""

    event: Callable[[], Event]
    lock: Callable[[], AbstractAsyncContextManager[Any]]
    parking_lot: Callable[[], ParkingLot]
    scope: NewScope
    open_nursery: Callable[[], AbstractAsyncContextManager[Any]]
    checkpoint: Callable[[], Awaitable[None]]
    """Let other tasks run; raises when the task is cancelled. Under asyncio, only at every 64th call, which costs more."""
    checkpoint_if_cancelled: Callable[[], Awaitable[None]]
    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    open_tcp: Callable[[Address, ssl.SSLContext | None], Awaitable[Stream]]
    """Connect, and encrypt with a context. Raises OSError."""
    close_now: Callable[[Any], Awaitable[None]]
    """Close a stream without waiting for anything, also when the task is cancelled."""
    send_buffers: Callable[[Any, list[Bytes]], Awaitable[None]]
    """Send these buffers, and empty the list: together, where the stream is a plain socket."""
    is_encrypted: Callable[[Any], bool]
    """Whether a stream is encrypted, so that a password may be sent."""
    broken: tuple[type[BaseException], ...] = (OSError,)
    """What the methods of a broken stream raise."""
    send_at_once: Callable[[Any, list[Bytes]], None] | None = None
    """Send what the kernel takes of these buffers now, and remove it from the list; the rest is for `send_buffers`."""
    is_in_place: bool = False
    """Whether one program has the loop and waits in every call, so that what it sets for a while holds for no other task."""


_uninterrupted: Final[list[Callable[..., Any]]] = []


def uninterrupted(function: F) -> F:
    """Mark a function that Ctrl-C does not interrupt, neither in itself nor in what it calls."""
    _uninterrupted.append(function)
    return function


def take_uninterrupted() -> list[Callable[..., Any]]:
    """Return the functions that were marked since the last call."""
    marked = _uninterrupted[:]
    _uninterrupted.clear()
    return marked


class WaitingLine:
    """A `ParkingLot` of the loop's events."""

    def __init__(self, event: Callable[[], Event]) -> None:
        self._event = event
        self._waiting: dict[Event, None] = {}

    async def park(self) -> None:
        turn = self._event()
        self._waiting[turn] = None
        try:
            await turn.wait()
        except BaseException:
            if turn not in self._waiting:  # cancelled when it was its turn
                self.unpark()
            raise
        finally:
            self._waiting.pop(turn, None)

    def unpark(self) -> None:
        if self._waiting:
            turn = next(iter(self._waiting))
            del self._waiting[turn]
            turn.set()

    def unpark_all(self) -> None:
        while self._waiting:
            self.unpark()


async def send_each(stream: Stream, buffers: list[Bytes]) -> None:
    """Send buffers over a stream that takes one at a time."""
    while buffers:
        await stream.send_all(buffers.pop(0))
