"""A connection of the native protocol for tests that run in trio beside the server: nothing between test and wire."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio
from triolog.protocol.native import messages
from triolog.protocol.native.connection import NEED_DATA, NativeConnection, Response
from triolog.protocol.native.state import Role

PATIENCE_S: Final = 60.0
RECEIVE_BYTES: Final = 256 * 1024


@attrs.define(eq=False)
class NativeStream:
    """One connection, with one request under way at a time. Owner: the test."""

    stream: trio.SocketStream
    connection: NativeConnection = attrs.field(factory=lambda: NativeConnection(Role.CLIENT))
    _ids: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))

    async def call(self, message: messages.RequestMessage) -> Any:
        """Send a request and wait for its answer. Raises RequestError."""
        pieces = self.connection.send_request(next(self._ids), message.api, messages.VERSION, message.to_body())
        with trio.fail_after(PATIENCE_S):
            await self.stream.send_all(b"".join(pieces))
            while (event := self.connection.next_event()) is NEED_DATA:
                self.connection.receive_data(await self.stream.receive_some(RECEIVE_BYTES))
        assert isinstance(event, Response), event
        if event.error is not None:
            raise event.error
        assert event.body is not None
        return messages.decode_response(event.api, event.version, event.body)


@asynccontextmanager
async def native_stream(address: tuple[str, int]) -> AsyncIterator[NativeStream]:
    """A connection that has said hello, for the time of the block."""
    async with await trio.open_tcp_stream(*address) as stream:
        client = NativeStream(stream)
        await client.call(messages.HelloRequest("test"))
        yield client
