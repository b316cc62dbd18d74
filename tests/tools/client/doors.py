"""The faces of the native client behind one door: whatever a trio test cannot await runs in a thread, so that it awaits all
alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final

import attrs
import trio
from triolog.protocol.following import BlockingFollow
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.tools.client import blocking
from triolog.tools.client.admin import Admin
from triolog.tools.client.appender import Appender
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import connect
from triolog.tools.client.consumer import open_consumer
from triolog.tools.client.producer import open_producer

from tests.support.native_server import NativeServer

from .asyncio_door import AsyncioThread

AddressSource = tuple[str, int] | Callable[[], tuple[str, int]]
QUICK: Final = ClientConfig(reconnect_backoff_ms=1, reconnect_backoff_max_ms=5)
RETRIES: Final = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
PLAIN: Final = frozenset({"position", "positions", "high_watermark", "transaction", "follow", "value", "add_listener"})
"""Calls that neither client waits in."""


async def in_thread(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return awaited(await trio.to_thread.run_sync(partial(call, *arguments, **options)))


def awaited(found: Any) -> Any:
    """An object of the blocking client wrapped; anything else as it is."""
    is_blocking = type(found).__module__.startswith(blocking.__name__) or isinstance(found, BlockingFollow)
    return Awaited(found) if is_blocking else found


async def iterated(values: Iterator[Any]) -> AsyncIterator[Any]:
    while (value := await in_thread(next, values, None)) is not None:
        yield value


@attrs.frozen
class Awaited:
    """A blocking object with the face of its counterpart for trio."""

    _blocked: Any

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._blocked, name)
        if not callable(found):
            return found
        if name in PLAIN:
            return lambda *arguments, **options: awaited(found(*arguments, **options))
        return partial(in_thread, found)

    def __await__(self) -> Any:
        return in_thread(self._blocked.result).__await__()

    def __aiter__(self) -> AsyncIterator[Any]:
        return iterated(iter(self._blocked))

    def records(self) -> AsyncIterator[Any]:
        return iterated(self._blocked.records())

    async def __aenter__(self) -> Awaited:
        await in_thread(self._blocked.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await in_thread(self._blocked.__exit__, *error)


@attrs.frozen
class Door:
    """Opens the objects of one face of the client: trio, asyncio (in the thread), or blocking."""

    face: str
    thread: AsyncioThread | None = None

    @property
    def is_blocking(self) -> bool:
        return self.face == "blocking"

    def client(self, address: AddressSource, config: ClientConfig = QUICK) -> AbstractAsyncContextManager[Any]:
        if self.is_blocking:
            return Awaited(blocking.BlockingClient(address, config))
        return self._opened(lambda: connect(address, config=config))

    def producer(self, client: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        if self.is_blocking:
            return _opened(lambda: blocking.BlockingProducer(client._blocked, **options))
        return self._opened(lambda: open_producer(self._own(client), **options))

    def consumer(self, client: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        if self.is_blocking:
            return Awaited(blocking.BlockingConsumer(client._blocked, **options))
        return self._opened(lambda: open_consumer(self._own(client), **options))

    def admin(self, client: Any) -> Any:
        if self.is_blocking:
            return Awaited(blocking.BlockingAdmin(client._blocked))
        return self._seen(Admin(self._own(client)))

    def appender(self, client: Any, **options: Any) -> Any:
        if self.is_blocking:
            return Awaited(blocking.BlockingAppender(client._blocked, **options))
        return self._seen(Appender(self._own(client), **options))

    def _opened(self, block: Callable[[], AbstractAsyncContextManager[Any]]) -> AbstractAsyncContextManager[Any]:
        return block() if self.thread is None else self.thread.entered(block)

    def _own(self, client: Any) -> Any:
        return client if self.thread is None else client.target

    def _seen(self, made: Any) -> Any:
        return made if self.thread is None else self.thread.wrapped(made)


@asynccontextmanager
async def _opened(make: Callable[[], AbstractContextManager[Any]]) -> AsyncIterator[Awaited]:
    """An object whose constructor blocks."""
    async with await in_thread(make) as made:
        yield made


class WrappedStream(trio.abc.Stream):
    """Hands everything on; a subclass does something before or after it."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream

    async def send_all(self, data: Any) -> None:
        await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self.stream.receive_some(max_bytes))

    async def aclose(self) -> None:
        await self.stream.aclose()


def fill(server: NativeServer, count: int, partition: int = 0, size: int = 3) -> None:
    """Append batches of so many records, whose timestamps are ten times their offsets."""
    log = server.logs["t"][partition]
    stop = log.high_watermark + count
    while (first := log.high_watermark) < stop:
        log.append(build_batch([(offset * 10, None, b"%d" % offset, ()) for offset in range(first, min(first + size, stop))]))
    server.appended()


def faults_on(server: NativeServer, kind: type[Any], *outcomes: Any) -> None:
    """One outcome for each request or partition of this kind; None is no fault."""
    left = list(outcomes)
    server.faults.append(lambda one: left.pop(0) if isinstance(one, kind) and left else None)


@attrs.define(eq=False)
class Served:
    """A fake server on a socket in this loop, and the door that a test looks at it through."""

    door: Door
    server: NativeServer
    port: int = 0
    _listening: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    async def listen(self) -> None:
        self._listening = trio.CancelScope()
        (listener,) = await self.server.nursery.start(self._serve)
        self.port = listener.socket.getsockname()[1]

    async def _serve(self, *, task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
        with self._listening:
            await trio.serve_tcp(self.server.serve, self.port, host="127.0.0.1", task_status=task_status)

    def go_down(self) -> None:
        self._listening.cancel()
        self.server.kill()

    async def move(self) -> None:
        self.go_down()
        self.port = 0
        await self.listen()

    def faults_on(self, kind: type[Any], *outcomes: Any) -> None:
        faults_on(self.server, kind, *outcomes)

    def requests(self, kind: type[Any]) -> list[Any]:
        return [request for request in self.server.requests if isinstance(request, kind)]

    def values(self, partition: int = 0) -> list[bytes | None]:
        return self.server.logs["t"][partition].values()

    def client(self, config: ClientConfig = QUICK) -> AbstractAsyncContextManager[Any]:
        return self.door.client(self.address, config)

    @asynccontextmanager
    async def producer(self, **options: Any) -> AsyncIterator[Any]:
        async with self.client() as client, self.door.producer(client, **RETRIES | options) as producer:
            yield producer

    @asynccontextmanager
    async def consumer(self, **options: Any) -> AsyncIterator[Any]:
        async with self.client() as client, self.door.consumer(client, **RETRIES | options) as consumer:
            yield consumer

    async def committed(self) -> list[bytes | None]:
        """What a reader of committed records finds in t-0."""
        async with connect(*self.address()) as client:
            async with open_consumer(client, follow=False, isolation="read_committed") as consumer:
                await consumer.assign(TopicPartition("t", 0))
                return [record.value async for _, record in consumer.records()]
