"""The connection of one writer: calls that are repeated until a deadline, and errors that name the server."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self, TypeVar

from ....protocol.errors import ErrorCode, RequestError, TriologError
from ....protocol.native.messages import MetadataRequest, MetadataResponse, RequestMessage, ResponseMessage
from ...client.backoff import Retries
from ...client.blocking.client import BlockingClient
from ...client.config import ClientConfig, address_text
from ...client.exchange import expect
from ...client.sending.topics import partition_count
from .write_options import NOBODY, ServerAccess

R = TypeVar("R", bound=ResponseMessage)

_UNANSWERED: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})


class DeliveryError(TriologError):
    """Records could not be handed over: who said so, of which topics, and why. What Spark shows when a task fails."""


class GivenUpError(DeliveryError):
    """Something was tried until its time was up. Whether it took effect is not known."""


class ServerLink:
    """A connection of one writer to a server, opened at the first call. Owner: one thread; never used after a fork."""

    def __init__(
        self,
        address: tuple[str, int],
        access: ServerAccess = NOBODY,
        *,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
    ) -> None:
        self._server = address_text(address)
        self.timeout_ms = delivery_timeout_ms
        config = ClientConfig(
            client_id="triolog-spark",
            connect_timeout_ms=min(10_000, delivery_timeout_ms),
            request_timeout_ms=min(request_timeout_ms, delivery_timeout_ms),
            tls=access.tls,
            login=access.login,
        )
        self.client = BlockingClient(address, config)
        self._counts: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.client.close()

    def call(self, kind: type[R], request: RequestMessage, what: str) -> R:
        """A call that may be repeated, until it is answered. GivenUpError past the deadline, DeliveryError for other errors."""
        try:
            return self.client.retried(lambda: expect(kind, self.client.call(request)), Retries(self.timeout_ms / 1000))
        except RequestError as exc:
            raise self.failure(what, exc) from exc

    def failure(self, what: str, error: RequestError) -> DeliveryError:
        """The error of something that is not tried again, or not any more."""
        if not error.retriable:
            return self.refusal(what, error)
        hint = "; is `triolog serve` running there?" if error.code in _UNANSWERED else ""
        return GivenUpError(
            f"{self._server}: {what} failed for {self.timeout_ms} ms (kafka.delivery.timeout.ms), at last with {error}{hint}"
        )

    def refusal(self, what: str, error: RequestError | str) -> DeliveryError:
        """The error of something that is not tried again."""
        return DeliveryError(f"{self._server}: {what}: {error}")

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic; requested once. DeliveryError names a topic that does not exist."""
        if topic not in self._counts:
            what = f"looking up topic {topic}"
            response = self.call(MetadataResponse, MetadataRequest((topic,)), what)
            try:
                self._counts[topic] = partition_count(topic, response)
            except RequestError as exc:
                how = "; `triolog topics create` makes it" if exc.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ""
                raise self.refusal(what, f"{exc}{how}") from exc
        return self._counts[topic]
