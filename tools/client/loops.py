"""The event loops that the async client runs on: trio, and asyncio by anyio, whose scopes and task groups behave as trio's.

Under trio every part is trio's own, so the choice costs nothing. `asyncio_loop` has the parts for asyncio, and is imported
only there. Ctrl-C: trio protects the functions that `enable_ki_protection` marks; `asyncio.run` turns it into a cancellation of
the main task, and interrupts nothing else.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Protocol, Self

import attrs
import trio

from .config import Address


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


class Nursery(Protocol):
    """A block with tasks. It ends when all of them have ended; the failure of one cancels the others."""

    @property
    def cancel_scope(self) -> Scope: ...
    def start_soon(self, function: Callable[..., Awaitable[Any]], /, *arguments: Any) -> object: ...
    async def start(self, function: Callable[..., Awaitable[Any]], /, *arguments: Any) -> Any: ...


class ParkingLot(Protocol):
    """Tasks that wait for their turn, the first one first."""

    async def park(self) -> None: ...
    def unpark(self) -> object: ...
    def unpark_all(self) -> object: ...


class Stream(Protocol):
    """A connection. Its methods raise OSError, or under trio BrokenResourceError and ClosedResourceError, when it is broken."""

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


async def _open_tcp(address: Address, context: ssl.SSLContext | None) -> Stream:
    stream = await trio.open_tcp_stream(*address)
    if context is None:
        return stream
    encrypted = trio.SSLStream(stream, context, server_hostname=address[0], https_compatible=True)
    try:
        await encrypted.do_handshake()
    except BaseException as exc:
        await trio.aclose_forcefully(stream)
        if isinstance(exc, trio.BrokenResourceError):
            raise OSError(f"TLS handshake failed: {exc.__cause__}") from exc
        raise
    return encrypted


TRIO: Final = Loop(
    event=trio.Event,
    lock=trio.Lock,
    parking_lot=trio.lowlevel.ParkingLot,
    scope=trio.CancelScope,
    open_nursery=trio.open_nursery,
    checkpoint=trio.lowlevel.checkpoint,
    checkpoint_if_cancelled=trio.lowlevel.checkpoint_if_cancelled,
    now=trio.current_time,
    sleep=trio.sleep,
    open_tcp=_open_tcp,
    close_now=trio.aclose_forcefully,
)


def is_encrypted(stream: Stream) -> bool:
    """Return whether a stream is encrypted, so that a password may be sent."""
    return isinstance(stream, trio.SSLStream) or bool(getattr(stream, "is_encrypted", False))
