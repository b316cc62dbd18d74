"""A server to talk to for blocking programs: the shared `Client` over a loop that runs inside its calls.

What a program that reads or writes whole record batches needs beside it is here, too: requests that are under way while the
program works, and repetition with a policy of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self, TypeVar

import attrs

from ....protocol.errors import RequestError
from ....protocol.following import BlockingFollow
from ....protocol.former import former_keywords
from ....protocol.native.messages import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    RequestMessage,
    ResponseMessage,
)
from ..backoff import Retries
from ..config import DEFAULT_PORT, ClientConfig, Server, address_of
from ..connection import Client
from ..exchange import expect, wait_ms
from ..former import FormerRequests
from ..greeted_connection import Call, Connection, TcpOpener
from ..procedures.driving import Driver
from ..procedures.topics import Procedure, checked
from .in_place import InPlace, blocking, made
from .loop import InPlaceLoop
from .transaction import BlockingLogTransaction

T = TypeVar("T")


@attrs.frozen(eq=False, repr=False)
class Started:
    """A request that is under way while whoever asked does something else."""

    _client: BlockingClient
    _connection: Connection
    _call: Call
    _wait_ms: int
    overdue_at: float
    """As time.monotonic has it; then the server is gone."""

    @property
    def is_lost(self) -> bool:
        """Return whether the connection of this request is lost."""
        return self._connection.is_lost

    def is_due(self, deadline: float) -> bool:
        """Receive until then; whether `take` would return a response or raise at once."""
        loop = self._client.loop
        loop.run(_until(loop, self._call, min(deadline, self.overdue_at)))
        return self._call.is_done or time.monotonic() >= self.overdue_at

    def take(self) -> ResponseMessage:
        """The answer; raises what `BlockingClient.call` does, also when it is overdue."""
        return self._finished(self.overdue_at - time.monotonic())

    def wait(self) -> ResponseMessage:
        """The answer, which may take from now on as long as any."""
        return self._finished(self._client.timeout_s(self._wait_ms))

    def _finished(self, timeout_s: float) -> ResponseMessage:
        answer = self._client.loop.run(self._connection.finish(self._call, timeout_s))
        assert answer is not None, "a request that is not answered is started"
        return answer


async def _until(loop: InPlaceLoop, call: Call, deadline: float) -> None:
    with loop.parts.scope(deadline=deadline):
        await call.event.wait()


class BlockingClient(FormerRequests):
    """A server to talk to. Connects at the first call, and anew when a connection is lost; calls are not repeated."""

    @former_keywords(address="server")
    def __init__(self, server: Server = "localhost", config: ClientConfig | None = None, *, port: int = DEFAULT_PORT) -> None:
        """`server`: "host", "host:port", a pair, or a callable that returns a pair before every attempt. `port`: of a server
        given as a host only. Raises ValueError."""
        config = ClientConfig() if config is None else config
        self.loop = self._loop = InPlaceLoop()
        opener = TcpOpener(address_of(server, port), config.tls)
        self._shared = Client(self.loop, opener, config, loop=self.loop.parts)

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._shared)[1:]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    @property
    def driver(self) -> Driver:
        """Return the client's way to call and to wait."""
        return self._shared.driver

    @property
    def max_frame_bytes(self) -> int:
        """The largest request that the server takes, as its last connection said; the default before there was one."""
        return self._shared.max_frame_bytes

    connected = blocking(Client.connected)
    call = blocking(Client.call)
    hello = blocking(Client.hello)
    produce = blocking(Client.produce)
    call_fetch = blocking(Client.call_fetch)
    metadata = blocking(Client.metadata)
    describe_configs = blocking(Client.describe_configs)
    create_topic = blocking(Client.create_topic)
    delete_topic = blocking(Client.delete_topic)
    topics = blocking(Client.topics)
    describe_topic = blocking(Client.describe_topic)
    append = blocking(Client.append)
    append_by_key = blocking(Client.append_by_key)
    fetch = blocking(Client.fetch)
    offset_for_time = blocking(Client.offset_for_time)
    offsets_for_times = blocking(Client.offsets_for_times)
    follow = made(lambda loop, follow: BlockingFollow(follow, InPlace(loop)), Client.follow)
    transaction = made(BlockingLogTransaction, Client.transaction)

    def run(self, procedure: Procedure[T]) -> T:
        """Drive a procedure to its result; what a call raises ends it."""
        return self.loop.run(self._shared.run(procedure))

    def timeout_s(self, wait_ms: int = 0) -> float:
        """Return the seconds to wait for a response when the server may wait for `wait_ms` on purpose."""
        return self._shared._timeout_s(wait_ms)

    def within(self, deadline: float) -> AbstractContextManager[None]:
        """Nothing that is begun inside the block waits beyond `deadline` (time.monotonic): neither to connect, nor to send, nor
        for an answer. What is not done by then loses the connection, as a server does that does not answer at all."""
        return self._shared.within(deadline)

    def start(self, request: RequestMessage) -> Started:
        """Send any request that is answered, and do not wait. Raises ConnectionLostError, RequestTimedOutError."""
        return self.loop.run(self._started(request))

    async def _started(self, request: RequestMessage) -> Started:
        may_wait_ms = wait_ms(request)
        connection = await self._shared.connected()
        timeout_s = self.timeout_s(may_wait_ms)
        call = await connection.start(request, timeout_s)
        return Started(self, connection, call, may_wait_ms, time.monotonic() + timeout_s)

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

    def close(self) -> None:
        """Close the connection; no further calls."""
        self._shared.close()
        self.loop.turn()
