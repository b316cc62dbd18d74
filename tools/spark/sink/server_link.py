"""The connection of one writer: calls that are repeated until a deadline, and errors that name the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self, TypeVar

import attrs

from ....protocol.errors import ErrorCode, RequestError, TriologError
from ....protocol.native.messages import MetadataRequest, MetadataResponse, RequestMessage, ResponseMessage
from ...client.backoff import Backoff
from ...client.blocking.client import BlockingClient
from ...client.blocking.connection import BlockingConnection
from ...client.config import ClientConfig, address_text
from ...client.exchange import expect
from ...client.sending.topics import partition_count
from .write_options import NOBODY, ServerAccess

R = TypeVar("R", bound=ResponseMessage)

_RETRY_MS: Final = (50, 1_000)
_UNANSWERED: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})


class DeliveryError(TriologError):
    """Records could not be handed over: who said so, of which topics, and why. What Spark shows when a task fails."""


class GivenUpError(DeliveryError):
    """Something was tried until its time was up. Whether it took effect is not known."""


class ServerLink:
    """One server for one writer. Connects at the first call. Owner: one thread; never used behind a fork."""

    def __init__(
        self,
        address: tuple[str, int],
        access: ServerAccess = NOBODY,
        *,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
    ) -> None:
        self._server = address_text(address)
        self._timeout_ms = delivery_timeout_ms
        config = ClientConfig(
            client_id="triolog-spark",
            connect_timeout_ms=min(10_000, delivery_timeout_ms),
            request_timeout_ms=min(request_timeout_ms, delivery_timeout_ms),
            tls=access.tls,
            login=access.login,
        )
        self._client = BlockingClient(address, config)
        self._counts: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self._client.close()

    def connected(self) -> BlockingConnection:
        """The connection, made now if there is none. Raises ConnectionLostError."""
        return self._client.connected()

    def deadline(self) -> float:
        """When a request that is sent now counts as lost."""
        return time.monotonic() + self._client.timeout_s()

    @property
    def max_frame_bytes(self) -> int:
        """The largest request that the server takes, as far as it has said so."""
        return self._client.max_frame_bytes

    @contextmanager
    def within(self, retries: Retries) -> Iterator[None]:
        """Inside the block nothing waits for longer than something is tried again."""
        with self._client.within(retries.give_up_at):
            yield

    def once(self, kind: type[R], request: RequestMessage) -> R:
        """One call, not repeated."""
        return expect(kind, self._client.call(request))

    def call(self, kind: type[R], request: RequestMessage, what: str) -> R:
        """A call that may be repeated, until it is answered. GivenUpError past the deadline, DeliveryError for other errors."""
        retries = self.retries(what)
        while True:
            try:
                with self.within(retries):
                    return self.once(kind, request)
            except RequestError as exc:
                retries.failed(exc)

    def retries(self, what: str) -> Retries:
        """A new count of failures of `what`, which its errors name."""
        return Retries(server=self._server, what=what, timeout_ms=self._timeout_ms)

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; asked once. DeliveryError names a topic that does not exist."""
        if topic not in self._counts:
            what = f"looking up topic {topic}"
            response = self.call(MetadataResponse, MetadataRequest((topic,)), what)
            try:
                self._counts[topic] = partition_count(topic, response)
            except RequestError as exc:
                how = "; `triolog topics create` makes it" if exc.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ""
                raise DeliveryError(f"{self._server}: {what}: {exc}{how}") from exc
        return self._counts[topic]


@attrs.define
class Retries:
    """Decides whether something that failed is tried again, and waits before it is."""

    _server: str
    _what: str
    _timeout_ms: int
    _backoff: Backoff = attrs.field(factory=lambda: Backoff(*_RETRY_MS))
    give_up_at: float = float("inf")
    """Known once something has failed (time.monotonic)."""
    _last: RequestError | None = None

    def failed(self, error: RequestError) -> None:
        """Wait before the next attempt; DeliveryError when there is to be none."""
        if not error.retriable:
            raise self.final(error) from error
        now = time.monotonic()
        before, self._last = self._last, error
        self.give_up_at = min(self.give_up_at, now + self._timeout_ms / 1000)
        pause_s = self._backoff.pause_s()
        if now + pause_s >= self.give_up_at:
            shown = before if before is not None and now >= self.give_up_at else error  # the last attempt was cut short
            hint = "; is `triolog serve` running there?" if shown.code in _UNANSWERED else ""
            raise GivenUpError(
                f"{self._server}: {self._what} failed for {self._timeout_ms} ms (kafka.delivery.timeout.ms), at last with "
                f"{shown}{hint}"
            ) from error
        time.sleep(pause_s)

    def final(self, error: RequestError | str) -> DeliveryError:
        """The error of something that is not tried again."""
        return DeliveryError(f"{self._server}: {self._what}: {error}")
