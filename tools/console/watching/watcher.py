"""Watches the server over one connection: samples its work each second while somebody watches, else every 5 s.
When the server's statistics are so large that sampling is a cost to it, samples are less frequent.

The connection reconnects automatically, with the client's backoff. `status` holds the last failure and its start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import attrs
import trio

from ....protocol.errors import RequestError, RequestTimedOutError, SaslAuthenticationError, TriologError
from ....protocol.native.messages import HelloResponse, TopicMetadata
from ...client.admin import Admin
from ...client.config import Address, ClientConfig, address_text
from ...client.connection import Client
from ...client.errors import ConnectionLostError
from ...client.greeted_connection import TcpOpener
from ...client.login import LoginConfig
from ...client.tls import TlsConfig
from ...statistics.rates import moment
from ..errors import ApiError
from ..events import EventQueue, encoded
from .history import CountedBefore, History, wear_series

WATCHED_S: Final = 1.0
UNWATCHED_S: Final = 5.0
"""Also the longest time between two samples while somebody looks."""
PAUSE_PER_CALL: Final = 120
"""So many times as long as the last call took: a server that tells of 500 topics takes 20 ms for it."""
WATCHED_FOR_S: Final = 10.0
"""After somebody has asked."""
REFUSED_S: Final = 10.0
"""Between two attempts at a server that wants a login: it may want none when it comes back."""
FIRST_SAMPLE_S: Final = 2.0
TOPICS_KEPT_S: Final = 2.0
MAX_STREAMS: Final = 8
"""Searches and tails at a time, each with a few MiB on its way."""
MOST_TOPICS: Final = 500
"""That `statistics` tells of."""
CLIENT_ID: Final = "triolog-console"
CONNECT_TIMEOUT_MS: Final = 5_000
REQUEST_TIMEOUT_MS: Final = 15_000

CHARTED: Final = (
    *("appended_records_per_second", "appended_bytes_per_second", "fetched_bytes_per_second", "requests_per_second"),
    *("errors_per_second", "loss_window_ms", "sync_p50_ms", "sync_p99_ms", "syncs_per_second", "lag"),
)
"""Of a moment what has a history."""

Describe = Callable[["Watcher"], dict[str, Any]]


@attrs.frozen
class Status:
    """The state of the connection: whether the server responds, since when, and the reason if not."""

    is_connected: bool
    since_ms: int
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"is_connected": self.is_connected, "since_ms": self.since_ms, "reason": self.reason}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@attrs.define(eq=False, repr=False)
class Watcher:
    """Owner of one client, and of what was sampled over it. `run` is its task."""

    address: Address
    tls: TlsConfig | None = None
    login: LoginConfig | None = None
    describe: Describe = lambda watcher: {}
    """Makes what each sample is told as."""
    history: History = attrs.field(factory=History)
    status: Status = attrs.field(factory=lambda: Status(False, now_ms(), "not connected yet"))
    wants_login: bool = False
    """Whether the server refused us because nobody has logged in."""
    refused: RequestError | None = None
    """Why the server does not tell its statistics, though it answers."""
    statistics: dict[str, Any] | None = None
    moment: dict[str, Any] | None = None
    """The last sample; None: there was none yet."""
    hello: HelloResponse | None = None
    counts: CountedBefore = attrs.field(factory=CountedBefore)
    streams: int = 0
    """That read records."""
    _client: Client | None = None
    _queues: set[EventQueue] = attrs.field(factory=set)
    _took_s: float = 0.0
    """The last call of `statistics`."""
    _asked_s: float = -WATCHED_FOR_S
    _asked: trio.Event = attrs.field(factory=trio.Event)
    _sampled: trio.Event = attrs.field(factory=trio.Event)
    _topics: list[TopicMetadata] = attrs.field(factory=list)
    _topics_until_s: float = -1.0
    _reading_topics: trio.Lock = attrs.field(factory=trio.Lock)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sample until cancelled."""
        config = ClientConfig(
            client_id=CLIENT_ID,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            tls=self.tls,
            login=self.login,
        )
        async with trio.open_nursery() as nursery:
            client = self._client = Client(nursery, TcpOpener(self.address, self.tls), config)
            task_status.started()
            try:
                while True:
                    begun_s = trio.current_time()
                    await self._sample()
                    self._sampled.set()
                    await self._pause(begun_s)
            finally:
                client.close()
                for queue in self._queues:
                    queue.put("ended", None)
                    queue.finish()

    # ---- asking --------------------------------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """For calls of views. Raises ConnectionLostError before `run`."""
        if self._client is None:
            raise ConnectionLostError("not connected yet")
        return self._client

    @property
    def admin(self) -> Admin:
        return Admin(self.client)

    def has_call(self, name: str) -> bool:
        """Return whether the server supports a call of the native protocol."""
        return self.hello is not None and name in self.hello.apis

    async def topics(self) -> list[TopicMetadata]:
        """Every topic, by name, as of two seconds ago at most."""
        async with self._reading_topics:
            if trio.current_time() >= self._topics_until_s:
                self._topics = await self.admin.list_topics()
                self._topics_until_s = trio.current_time() + TOPICS_KEPT_S
            return self._topics

    def forget_topics(self) -> None:
        """They have changed."""
        self._topics_until_s = -1.0

    def check_streams(self) -> None:
        """Raises ApiError where there are enough."""
        if self.streams >= MAX_STREAMS:
            raise ApiError(429, "TOO_MANY_STREAMS", f"{self.streams} searches and tails are running. Close a tab that runs one")

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """For the time of one."""
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    # ---- watching ------------------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """Return the address of the server as text."""
        return address_text(self.address)

    def ask(self) -> None:
        """Somebody looks: samples come each second for a while."""
        self._asked_s = trio.current_time()
        self._asked.set()

    async def first_sample(self) -> None:
        """Wait for it, but not for long: a view says what is missing."""
        self.ask()
        if self.moment is None:
            with trio.move_on_after(FIRST_SAMPLE_S):
                await self._sampled.wait()

    def subscribe(self, queue: EventQueue) -> None:
        """Give the queue the last sample, and each one until `unsubscribe`."""
        if self._sampled.is_set():
            queue.put("sample", self.describe(self))
        self._queues.add(queue)
        self.ask()

    def unsubscribe(self, queue: EventQueue) -> None:
        self._queues.discard(queue)

    @property
    def is_watched(self) -> bool:
        return bool(self._queues) or trio.current_time() - self._asked_s < WATCHED_FOR_S

    # ---- sampling ------------------------------------------------------------------------------------------------------

    async def _sample(self) -> None:
        try:
            client = self.client
            self.hello = await client.hello()
            begun_s = trio.current_time()
            after = await Admin(client).statistics()
            self._took_s = trio.current_time() - begun_s
        except (ConnectionLostError, RequestTimedOutError, OSError) as exc:
            self._lost(getattr(exc, "message", str(exc)))
        except SaslAuthenticationError as exc:
            self.wants_login = self.login is None
            self._lost(exc.message)
        except RequestError as exc:
            self._answered()
            self.refused = exc
        except TriologError as exc:
            self._lost(str(exc))
        else:
            self._answered()
            self.refused = None
            self._keep(after)
        self._tell()

    def _keep(self, after: dict[str, Any]) -> None:
        before, self.statistics = self.statistics, after
        found = moment(before or after, after, topics=MOST_TOPICS)
        if before is None:  # nothing is known of what happened between
            found |= {name: None for name in found if name.endswith("_per_second")}
        self.moment = found
        worn = {} if before is None else wear_series(before, after)
        topics = {f"topic:{each['topic']}": each["appended_bytes_per_second"] for each in found["topics"]}
        groups: dict[str, float] = {}
        for each in after["groups"]["lags"]:
            name = f"group:{each['group']}"
            groups[name] = groups.get(name, 0) + each["lag"]
        self.history.add(now_ms(), {name: found[name] for name in CHARTED}, topics | groups | worn)

    def _answered(self) -> None:
        self.wants_login = False
        if not self.status.is_connected:
            self.status = Status(True, now_ms())
            self.forget_topics()

    def _lost(self, reason: str) -> None:
        if self.status.is_connected or self.status.reason != reason:
            since_ms = now_ms() if self.status.is_connected else self.status.since_ms
            self.status = Status(False, since_ms, reason)

    def _tell(self) -> None:
        if self._queues:
            event = encoded("sample", self.describe(self))
            for queue in self._queues:
                queue.put_encoded(event)

    async def _pause(self, begun_s: float) -> None:
        """Until the next sample is due; somebody who begins to look does not wait for it."""
        if self.wants_login:
            await trio.sleep(REFUSED_S)
            return
        self._asked = trio.Event()
        if not self.is_watched:
            with trio.move_on_at(begun_s + UNWATCHED_S):
                await self._asked.wait()
                return
        await trio.sleep_until(begun_s + min(UNWATCHED_S, max(WATCHED_S, PAUSE_PER_CALL * self._took_s)))
