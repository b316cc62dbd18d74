"""A plain socket that does not block, as a stream for the loop of a blocking program; encrypted, where that is wanted."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self

from ....protocol.types import Bytes
from ..exchange import MAX_VECTOR, MIN_RECEIVE_BYTES, remove_sent
from .polling import READABLE, WRITABLE

_FULL: Final = (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError)

Ready = Callable[[int, int], Awaitable[None]]
"""Waits until a file descriptor is READABLE or WRITABLE."""


class SocketStream:
    """A `Stream`. Owner: a connection."""

    def __init__(self, opened: socket.socket, ready: Ready) -> None:
        self._socket = opened
        self._ready = ready
        self._descriptor = opened.fileno()
        self.is_encrypted = isinstance(opened, ssl.SSLSocket)
        self._sends_one = self.is_encrypted or sys.platform == "win32"  # which has no sendmsg(2)

    @classmethod
    async def over(cls, opened: socket.socket, ready: Ready, context: ssl.SSLContext | None, host: str) -> Self:
        """Return the stream of a connected socket, encrypted with a context. Raises OSError, and closes the socket then."""
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setblocking(False)
            if context is None:
                return cls(opened, ready)
            opened = encrypted = context.wrap_socket(opened, server_hostname=host, do_handshake_on_connect=False)
            stream = cls(encrypted, ready)
            await stream._done(encrypted.do_handshake)
            return stream
        except BaseException:
            opened.close()
            raise

    def send_at_once(self, buffers: list[Bytes]) -> None:
        """Send what the kernel takes now and remove it from the list; TLS and Windows accept one buffer at a time."""
        try:
            while buffers:
                sent = self._socket.send(buffers[0]) if self._sends_one else self._socket.sendmsg(buffers[:MAX_VECTOR])
                remove_sent(buffers, sent)
        except _FULL:
            pass

    async def send_buffers(self, buffers: list[Bytes]) -> None:
        """Send buffers and empty the list."""
        while buffers:
            self.send_at_once(buffers)
            if buffers:
                await self._ready(self._descriptor, WRITABLE)

    async def send_all(self, data: Any) -> None:
        """Send all of it."""
        await self.send_buffers([data])

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return what has come, once something has; nothing at the end."""
        if not self.is_encrypted:
            await self._ready(self._descriptor, READABLE)
        received: bytes = await self._done(self._socket.recv, max_bytes or MIN_RECEIVE_BYTES)
        return received

    async def aclose(self) -> None:
        """Close it; waits for nothing."""
        self._socket.close()

    async def _done(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Repeat it until it does not have to wait for the socket."""
        while True:
            try:
                return function(*arguments)
            except ssl.SSLWantWriteError:
                await self._ready(self._descriptor, WRITABLE)
            except (BlockingIOError, ssl.SSLWantReadError):
                await self._ready(self._descriptor, READABLE)
