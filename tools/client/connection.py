"""A client that keeps a connection to one server open: after a connection is lost, the next call opens a new one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any, TypeVar

from ...protocol import limits
from ...protocol.errors import RequestError, SaslAuthenticationError
from ...protocol.former import former_keywords
from ...protocol.native.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    FetchRequest,
    FetchResponse,
    HelloResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    RequestMessage,
    ResponseMessage,
)
from .backoff import Backoff
from .config import DEFAULT_PORT, ClientConfig, Server, address_of
from .errors import ClosedError, ConnectionLostError
from .exchange import expect, wait_ms
from .former import FormerRequests
from .greeted_connection import Connection, OpenStream, TcpOpener, greet
from .log_calls import LogCalls
from .loops import Nursery
from .procedures.driving import Driver
from .procedures.topics import Procedure
from .running_loop import current_loop


@asynccontextmanager
async def open_background() -> AsyncIterator[Nursery]:
    """A nursery whose one failure leaves it as it was raised; several leave as a group.

    What the caller's block raises belongs to the caller, who did not ask for a nursery.
    """
    failure: BaseException | None = None
    try:
        async with current_loop().open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        failure = group.exceptions[0]
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # its traceback holds this frame


T = TypeVar("T")


class Client(FormerRequests, LogCalls):
    """A server to talk to. Makes its connection anew when one is lost; calls may come from any task.

    Calls are not repeated: a ConnectionLostError says that the outcome is unknown, and only the caller knows whether that
    matters. Producer and Consumer do repeat theirs.
    """

    def __init__(self, nursery: Nursery, open_stream: OpenStream, config: ClientConfig) -> None:
        super().__init__(LoopDriver(self))
        self.loop = current_loop()
        self._nursery = nursery
        self._open_stream = open_stream
        self._config = config
        self._connection: Connection | None = None
        self._connecting = self.loop.lock()
        self._backoff = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
        self._not_before = -float("inf")
        self._failed_attempts = 0
        self._last_failure: RequestError = ConnectionLostError("not connected yet")
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Client {self._config.client_id!r} {self._connection!r}>"

    async def connected(self) -> Connection:
        """The connection, made now if there is none. Raises ConnectionLostError, SaslAuthenticationError, ClosedError.

        Whoever waits for an attempt that another task makes fails with it: else each of many would wait for all before it.
        """
        failed_attempts = self._failed_attempts
        async with self._connecting:
            if self._is_closed:
                raise ClosedError("the client is closed")
            if self._connection is None or self._connection.is_lost:
                if self._failed_attempts != failed_attempts:
                    raise type(self._last_failure)(self._last_failure.message)
                await self.loop.sleep(max(0.0, self._not_before - self.loop.now()))
                try:
                    self._connection = await greet(self._open_stream, self._config)
                except (ConnectionLostError, SaslAuthenticationError) as exc:
                    self._failed_attempts += 1
                    self._last_failure = exc
                    self._not_before = self.loop.now() + self._backoff.pause_s()
                    raise
                self._backoff.reset()
                self._not_before = self.loop.now() + self._config.reconnect_backoff_ms / 1000
                self._nursery.start_soon(self._connection.run)
            return self._connection

    @former_keywords(wait_ms=None)
    async def call(self, request: RequestMessage) -> ResponseMessage | None:
        """Send any request, and wait for the response, longer if the server may wait on purpose. Raises as
        `Connection.call`."""
        connection = self._connection
        if connection is None or connection.is_lost:
            connection = await self.connected()
        return await connection.call(request, (self._config.request_timeout_ms + wait_ms(request)) / 1000)

    async def run(self, procedure: Procedure[T]) -> T:
        """Drive a procedure to its result; what a call raises ends it. Always a checkpoint."""
        answer: Any = None
        try:
            await self.loop.checkpoint()
            while True:
                answer = await self.call(procedure.send(answer))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            procedure.close()

    @property
    def max_frame_bytes(self) -> int:
        """The largest request that the server takes, as its last connection said; the default before there was one."""
        return limits.MAX_FRAME_BYTES if self._connection is None else self._connection.hello.max_frame_bytes

    async def hello(self) -> HelloResponse:
        """Return the server's identity and the features that it offers."""
        return (await self.connected()).hello

    async def produce(self, request: ProduceRequest) -> ProduceResponse | None:
        """Append; None for acks 0. Errors of partitions stand in their entries, here and below."""
        response = await self.call(request)
        return None if response is None else expect(ProduceResponse, response)

    async def call_fetch(self, request: FetchRequest) -> FetchResponse:
        """Read, waiting as long as the request says."""
        return expect(FetchResponse, await self.call(request))

    async def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Describe topics."""
        return expect(MetadataResponse, await self.call(request))

    async def describe_configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        """Show configurations."""
        return expect(DescribeConfigsResponse, await self.call(request))

    def close(self) -> None:
        """No further calls; those that wait fail."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.lose(ConnectionLostError("the client was closed"))


@former_keywords(host="server", address="server")
@asynccontextmanager
async def connect(
    server: Server = "localhost",
    port: int = DEFAULT_PORT,
    *,
    open_stream: OpenStream | None = None,
    config: ClientConfig | None = None,
) -> AsyncIterator[Client]:
    """Open a client of a server: "host", "host:port", a pair, or a callable that returns a pair before every attempt.

    `port`: the port of a server that is given as a host. `open_stream`: opens streams to the server in place of TCP. Connects
    before it enters the block, and raises ConnectionLostError when that fails; ValueError for an invalid server. Leaving the
    block closes the connection; calls of other tasks that still wait fail.
    """
    config = ClientConfig() if config is None else config
    opener = open_stream or TcpOpener(address_of(server, port), config.tls)
    async with open_background() as nursery:
        client = Client(nursery, opener, config)
        try:
            await client.connected()
            yield client
        finally:
            client.close()


class LoopDriver(Driver):
    """The driver of a client in an event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def lock(self) -> AbstractAsyncContextManager[object]:
        return self._client.loop.lock()

    async def run(self, procedure: Procedure[T]) -> T:
        return await self._client.run(procedure)

    async def sleep(self, seconds: float) -> None:
        await self._client.loop.sleep(seconds)

    def now(self) -> float:
        return self._client.loop.now()

    def within(self, deadline: float) -> AbstractContextManager[object]:
        return nullcontext()

    def shielded(self, seconds: float) -> AbstractContextManager[object]:
        return self._client.loop.scope(shield=True, deadline=self.now() + seconds)
