"""The client's event loop under asyncio, made of anyio's and asyncio's parts."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import anyio
import anyio.abc
import anyio.lowlevel
from anyio.streams.tls import TLSStream

from .config import Address
from .loops import Loop

CALLS_PER_YIELD: Final = 64


class _ParkingLot:
    def __init__(self) -> None:
        self._waiting: dict[asyncio.Event, None] = {}

    async def park(self) -> None:
        turn = asyncio.Event()
        self._waiting[turn] = None
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():  # cancelled when it was its turn
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


@contextmanager
def _os_errors() -> Iterator[None]:
    try:
        yield
    except (anyio.BrokenResourceError, anyio.ClosedResourceError) as exc:
        raise OSError(str(exc.__cause__ or exc) or "the connection is closed") from exc


class _Stream:
    def __init__(self, stream: anyio.abc.ByteStream, *, is_encrypted: bool) -> None:
        self._stream = stream
        self.is_encrypted = is_encrypted

    async def send_all(self, data: Any) -> None:
        with _os_errors():
            await self._stream.send(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        with _os_errors():
            try:
                return await self._stream.receive(max_bytes or 65536)
            except anyio.EndOfStream:
                return b""

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _open_tcp(address: Address, context: ssl.SSLContext | None) -> _Stream:
    stream = await anyio.connect_tcp(*address)
    if context is None:
        return _Stream(stream, is_encrypted=False)
    try:
        encrypted = await TLSStream.wrap(stream, hostname=address[0], ssl_context=context, standard_compatible=False)
    except BaseException as exc:
        await anyio.aclose_forcefully(stream)
        if isinstance(exc, ssl.SSLError | anyio.BrokenResourceError | anyio.EndOfStream):
            raise OSError(f"TLS handshake failed: {exc.__cause__ or exc}") from exc
        raise
    return _Stream(encrypted, is_encrypted=True)


_calls = 0


async def _checkpoint() -> None:
    global _calls
    _calls += 1
    if _calls % CALLS_PER_YIELD == 0:
        await anyio.lowlevel.checkpoint()


ASYNCIO: Final = Loop(
    event=asyncio.Event,
    lock=asyncio.Lock,
    parking_lot=_ParkingLot,
    scope=anyio.CancelScope,
    open_nursery=anyio.create_task_group,
    checkpoint=_checkpoint,
    checkpoint_if_cancelled=anyio.lowlevel.checkpoint_if_cancelled,
    now=anyio.current_time,
    sleep=anyio.sleep,
    open_tcp=_open_tcp,
    close_now=anyio.aclose_forcefully,
)


def current_asyncio_loop() -> Loop:
    """Return the loop. Raises RuntimeError where none runs."""
    asyncio.get_running_loop()
    return ASYNCIO
