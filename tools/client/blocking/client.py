"""A server to talk to without trio: keeps one connection open, makes it anew when it is lost, repeats no calls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import attrs

from ....protocol import limits
from ....protocol.errors import RequestError, SaslAuthenticationError
from ....protocol.following import BlockingFollow
from ....protocol.former import former_keywords
from ....protocol.native.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    FetchPartitionResponse,
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
from ..backoff import Backoff, Retries
from ..config import DEFAULT_PORT, ClientConfig, Server, address_of
from ..errors import ClosedError, ConnectionLostError
from ..exchange import expect, is_answered, wait_ms
from ..former import FormerRequests
from ..log_calls import LogCalls
from ..procedures.driving import Driver
from ..procedures.topics import Procedure, checked
from .connection import BlockingConnection
from .in_place import InPlace, blocking, made
from .transaction import BlockingLogTransaction

P = ParamSpec("P")
T = TypeVar("T")


@attrs.frozen(eq=False, repr=False)
class Started:
    """A request that is under way while whoever asked does something else."""

    _client: BlockingClient
    connection: BlockingConnection
    _correlation_id: int
    _wait_ms: int
    overdue_at: float
    """As time.monotonic has it; then the server is gone."""

    @property
    def is_lost(self) -> bool:
        """Return whether the connection of this request is lost."""
        return self.connection.is_lost

    @property
    def is_ready(self) -> bool:
        """Return whether `take` would return a response or raise at once."""
        return self.connection.is_answered(self._correlation_id) or time.monotonic() >= self.overdue_at

    def is_due(self, deadline: float) -> bool:
        """Receive until then; whether it is ready."""
        while not self.is_ready:
            if not self.connection.pump(min(deadline, self.overdue_at)) and time.monotonic() >= deadline:
                return False
        return True

    def take(self) -> ResponseMessage:
        """The answer; raises what `BlockingClient.call` does, also when it is overdue."""
        return self.connection.finish(self._correlation_id, self.overdue_at)

    def wait(self) -> ResponseMessage:
        """The answer, which may take from now on as long as any."""
        return self.connection.finish(self._correlation_id, time.monotonic() + self._client.timeout_s(self._wait_ms))

    def forget(self) -> None:
        """The answer is of no interest any more."""
        with contextlib.suppress(RequestError):
            self.connection.forget(self._correlation_id)


class BlockingClient(FormerRequests):
    """A server to talk to. Connects at the first call, and anew when a connection is lost; calls are not repeated."""

    @former_keywords(address="server")
    def __init__(self, server: Server = "localhost", config: ClientConfig | None = None, *, port: int = DEFAULT_PORT) -> None:
        """`server`: "host", "host:port", a pair, or a callable that returns a pair before every attempt. `port`: the port
        of a server that is given as a host. Raises ValueError."""
        self.driver = BlockingDriver(self)
        self._shared = LogCalls(self.driver)
        self._address = address_of(server, port)
        self._config = ClientConfig() if config is None else config
        self._connection: BlockingConnection | None = None
        self._backoff = Backoff(self._config.reconnect_backoff_ms, self._config.reconnect_backoff_max_ms)
        self._not_before = -float("inf")
        self._deadline = float("inf")  # of the block of `within`
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<BlockingClient {self._config.client_id!r} {self._connection!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def connected(self) -> BlockingConnection:
        """The connection, made now if there is none. Raises ConnectionLostError, SaslAuthenticationError, ClosedError."""
        if self._is_closed:
            raise ClosedError("the client is closed")
        if self._connection is None or self._connection.is_lost:
            time.sleep(max(0.0, min(self._not_before, self._deadline) - time.monotonic()))
            deadline = min(self._deadline, time.monotonic() + self._config.connect_timeout_ms / 1000)
            try:
                self._connection = BlockingConnection(self._address, self._config, deadline)
            except (ConnectionLostError, SaslAuthenticationError):
                self._not_before = time.monotonic() + self._backoff.pause_s()
                raise
            self._backoff.reset()
            self._not_before = time.monotonic() + self._config.reconnect_backoff_ms / 1000
        return self._connection

    def timeout_s(self, wait_ms: int = 0) -> float:
        """Return the seconds to wait for a response when the server may wait for `wait_ms` on purpose."""
        return min((self._config.request_timeout_ms + wait_ms) / 1000, self._deadline - time.monotonic())

    @contextmanager
    def within(self, deadline: float) -> Iterator[None]:
        """Nothing that is begun inside the block waits beyond `deadline` (time.monotonic): neither to connect, nor to send, nor
        for an answer. What is not done by then loses the connection, as a server does that does not answer at all."""
        before = self._deadline
        self._deadline = min(before, deadline)
        try:
            yield
        finally:
            self._deadline = before

    @former_keywords(wait_ms=None)
    def call(self, request: RequestMessage) -> ResponseMessage | None:
        """Send any request; None for a produce with acks 0.

        Raises what the server answered, ConnectionLostError, or RequestTimedOutError, after which the connection is lost.
        """
        deadline = time.monotonic() + self.timeout_s(wait_ms(request))
        connection = self.connected()
        correlation_id = connection.start(request, deadline)
        return connection.finish(correlation_id, deadline) if is_answered(request) else None

    def start(self, request: RequestMessage) -> Started:
        """Send any request that is answered, and do not wait. Raises ConnectionLostError, RequestTimedOutError."""
        may_wait_ms = wait_ms(request)
        connection, deadline = self.connected(), time.monotonic() + self.timeout_s(may_wait_ms)
        return Started(self, connection, connection.start(request, deadline), may_wait_ms, deadline)

    def retried(self, ask: Callable[[], T], retries: Retries) -> T:
        """Repeat what asks this client until there is an answer, or raise what it failed with."""
        while True:
            try:
                with self.within(retries.give_up_at):
                    return ask()
            except RequestError as exc:
                retries.failed(exc)

    def fetch_partition(self, request: FetchRequest, retries: Retries, ahead: Started | None = None) -> FetchPartitionResponse:
        """The answer of a fetch from one partition; `ahead` is the same fetch, sent before. Raises the partition's error."""

        def ask() -> FetchPartitionResponse:
            nonlocal ahead
            sent, ahead = ahead, None
            response = self.call_fetch(request) if sent is None else expect(FetchResponse, sent.wait())
            [entry] = checked(response.partitions)
            return entry

        return self.retried(ask, retries)

    def fetch_ahead(self, request: FetchRequest) -> Started | None:
        """Ask now for what `fetch_partition` takes later; None when it cannot be asked now, and that asks itself then."""
        try:
            return self.start(request)
        except RequestError:
            return None

    create_topic = blocking(LogCalls.create_topic)
    delete_topic = blocking(LogCalls.delete_topic)
    topics = blocking(LogCalls.topics)
    describe_topic = blocking(LogCalls.describe_topic)
    append = blocking(LogCalls.append)
    append_by_key = blocking(LogCalls.append_by_key)
    fetch = blocking(LogCalls.fetch)
    offset_for_time = blocking(LogCalls.offset_for_time)
    offsets_for_times = blocking(LogCalls.offsets_for_times)
    follow = made(lambda follow: BlockingFollow(follow, InPlace()), LogCalls.follow)
    transaction = made(BlockingLogTransaction, LogCalls.transaction)

    def run(self, procedure: Procedure[T]) -> T:
        """Drive a procedure to its result; what a call raises ends it."""
        answer: Any = None
        try:
            while True:
                answer = self.call(procedure.send(answer))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            procedure.close()

    @property
    def max_frame_bytes(self) -> int:
        """The largest request that the server takes, as its last connection said; the default before there was one."""
        return limits.MAX_FRAME_BYTES if self._connection is None else self._connection.hello.max_frame_bytes

    def hello(self) -> HelloResponse:
        """Return the server's identity and the features that it offers."""
        return self.connected().hello

    def produce(self, request: ProduceRequest) -> ProduceResponse | None:
        """Append; None for acks 0. Errors of partitions stand in their entries, here and below."""
        response = self.call(request)
        return None if response is None else expect(ProduceResponse, response)

    def call_fetch(self, request: FetchRequest) -> FetchResponse:
        """Read, waiting as long as the request says."""
        return expect(FetchResponse, self.call(request))

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Describe topics."""
        return expect(MetadataResponse, self.call(request))

    def describe_configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        """Show configurations."""
        return expect(DescribeConfigsResponse, self.call(request))

    def close(self) -> None:
        """Close the connection; no further calls."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.lose(ConnectionLostError("the client was closed"))


class BlockingDriver(Driver):
    """Of a client without trio: nothing of it is left to wait for when it is awaited."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    def lock(self) -> AbstractAsyncContextManager[object]:
        return contextlib.nullcontext()

    async def run(self, procedure: Procedure[T]) -> T:
        return self._client.run(procedure)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251

    def now(self) -> float:
        return time.monotonic()

    def within(self, deadline: float) -> AbstractContextManager[object]:
        return self._client.within(deadline)

    def shielded(self, seconds: float) -> AbstractContextManager[object]:
        return contextlib.nullcontext()
