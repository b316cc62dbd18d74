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

from tests.support.kafka_stream import connected

PATIENCE_S: Final = 60.0
RECEIVE_BYTES: Final = 256 * 1024


@attrs.define(eq=False)
class NativeStream:
    """One connection, with one request under way at a time. Owner: the test."""

    stream: trio.SocketStream
    connection: NativeConnection = attrs.field(factory=lambda: NativeConnection(Role.CLIENT))
    _ids: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))

    async def send(self, message: messages.RequestMessage) -> None:
        """Send a request whose answer `receive` will give."""
        await self.send_raw(
            b"".join(self.connection.send_request(next(self._ids), message.api, messages.VERSION, message.to_body()))
        )

    async def send_raw(self, data: bytes) -> None:
        with trio.fail_after(PATIENCE_S):
            await self.stream.send_all(data)

    async def receive(self) -> Response:
        """The next answer."""
        with trio.fail_after(PATIENCE_S):
            while (event := self.connection.next_event()) is NEED_DATA:
                self.connection.receive_data(await self.stream.receive_some(RECEIVE_BYTES))
        assert isinstance(event, Response), event
        return event

    async def call(self, message: messages.RequestMessage) -> Any:
        """Send a request and wait for its answer. Raises RequestError."""
        await self.send(message)
        answer = await self.receive()
        if answer.error is not None:
            raise answer.error
        assert answer.body is not None
        return messages.decode_response(answer.api, answer.version, answer.body)


@asynccontextmanager
async def native_stream(address: tuple[str, int], *, say_hello: bool = True, **options: Any) -> AsyncIterator[NativeStream]:
    """A connection that has said hello, for the time of the block; options are those of `connected`."""
    async with connected(address, **options) as plain:
        client = NativeStream(plain.stream)
        if say_hello:
            await client.call(messages.HelloRequest("test"))
        yield client
