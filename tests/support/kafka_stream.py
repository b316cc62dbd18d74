"""What `kafka_wire` does for blocking tests, for those that run in trio beside the server: nothing between test and wire.

It neither retries nor looks for versions. Answers come in the order of the requests, and every byte of one has to be used.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

from tests.support.kafka_wire import Asked, api_of, decode_answer, frame

PATIENCE_S: Final = 30.0
RECEIVE_BYTES: Final = 256 * 1024


@attrs.define(eq=False)
class KafkaStream:
    """One connection. Owner: the test."""

    stream: trio.SocketStream
    _ids: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))
    _asked: deque[Asked] = attrs.field(factory=deque)
    _received: bytearray = attrs.field(factory=bytearray)

    async def call(self, body: object, version: int) -> Any:
        """Send a request and wait for its answer."""
        await self.send(body, version)
        return await self.receive()

    async def send(self, body: object, version: int, *, expects_answer: bool = True) -> None:
        """Send a request whose answer `receive` will give."""
        asked = Asked(api_of(body), version, next(self._ids))
        await self.send_raw(frame(body, version, asked.correlation_id))
        if expects_answer:
            self._asked.append(asked)

    async def send_raw(self, data: bytes) -> None:
        """Bytes as they are."""
        with trio.fail_after(PATIENCE_S):
            await self.stream.send_all(data)

    async def receive(self) -> Any:
        """The body of the answer to the oldest request that has none yet. EOFError when the server ends it instead."""
        return decode_answer(self._asked.popleft(), await self.receive_frame())

    async def receive_frame(self) -> bytes:
        """The bytes of the next answer, header included."""
        (size,) = struct.unpack(">i", await self._exactly(4))
        return await self._exactly(size)

    async def is_closed_by_server(self) -> bool:
        """Whether the server ends the connection without another word; waits for it. A reset counts."""
        if self._received:
            return False
        try:
            with trio.fail_after(PATIENCE_S):
                return not await self.stream.receive_some(1)
        except trio.BrokenResourceError:
            return True

    async def reset(self) -> None:
        """End the connection as a process does that dies with unread bytes."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(self.stream)

    async def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            with trio.fail_after(PATIENCE_S):
                data = await self.stream.receive_some(RECEIVE_BYTES)
            if not data:
                raise EOFError(f"the server ended the connection {size - len(self._received)} bytes before they were there")
            self._received += data
        data = bytes(self._received[:size])
        del self._received[:size]
        return data


@asynccontextmanager
async def connected(address: tuple[str, int], *, receive_buffer_bytes: int | None = None) -> AsyncIterator[KafkaStream]:
    """A connection for the time of the block. A small receive buffer makes a peer that does not read felt at once."""
    endpoint = trio.socket.socket()
    try:
        if receive_buffer_bytes is not None:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        await endpoint.connect(address)
    except BaseException:
        endpoint.close()
        raise
    async with trio.SocketStream(endpoint) as stream:
        yield KafkaStream(stream)
