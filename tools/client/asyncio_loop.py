"""The client's event loop under asyncio: its events, locks and streams, and the scopes and nurseries of `asyncio_tasks`."""

from __future__ import annotations

import asyncio
import ssl
from ipaddress import ip_address
from typing import Any, Final

from ...protocol.limits import KIB
from .asyncio_tasks import Nursery, Scope, checkpoint_if_cancelled
from .config import Address
from .loops import Loop, WaitingLine, send_each

CALLS_PER_YIELD: Final = 64
RECEIVED_BYTES: Final = 256 * KIB
"""A stream stops reading from its socket when twice as much has been received and not read."""
ATTEMPT_S: Final = 0.25
"""Seconds after which the next address of a host is tried, beside those before it (RFC 8305)."""


class _Stream:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_encrypted = writer.get_extra_info("ssl_object") is not None

    async def send_all(self, data: Any) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self._reader.read(max_bytes or RECEIVED_BYTES)

    async def aclose(self) -> None:
        """Close it without waiting for the peer."""
        await _close_now(self._writer)


async def _open_tcp(address: Address, context: ssl.SSLContext | None) -> _Stream:
    # Loops that are not asyncio's own, such as uvloop, try one address after the other.
    has_races = isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)
    pace: dict[str, Any] = {"happy_eyeballs_delay": ATTEMPT_S} if has_races and _is_name(address[0]) else {}
    reader, writer = await asyncio.open_connection(*address, limit=RECEIVED_BYTES, **pace)
    if context is not None:
        try:
            await writer.start_tls(context, server_hostname=address[0])
        except BaseException as exc:
            await _close_now(writer)
            if isinstance(exc, OSError):
                raise OSError(f"TLS handshake failed: {exc}") from exc
            raise
    return _Stream(reader, writer)


def _is_name(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


async def _close_now(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    await asyncio.sleep(0)  # the loop closes the socket


_calls = 0


async def _checkpoint() -> None:
    global _calls
    _calls += 1
    if _calls % CALLS_PER_YIELD == 0:
        await asyncio.sleep(0)


ASYNCIO: Final = Loop(
    event=asyncio.Event,
    lock=asyncio.Lock,
    parking_lot=lambda: WaitingLine(asyncio.Event),
    scope=Scope,
    open_nursery=Nursery,
    checkpoint=_checkpoint,
    checkpoint_if_cancelled=checkpoint_if_cancelled,
    now=lambda: asyncio.get_running_loop().time(),
    sleep=asyncio.sleep,
    open_tcp=_open_tcp,
    close_now=lambda stream: stream.aclose(),
    send_buffers=send_each,
    is_encrypted=lambda stream: bool(stream.is_encrypted),
)


def current_asyncio_loop() -> Loop:
    """Return the loop. Raises RuntimeError where none runs."""
    asyncio.get_running_loop()
    return ASYNCIO
