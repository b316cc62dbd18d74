"""The connection of one writer, whose calls are repeated until a deadline and whose errors name the server; and its outboxes.
`ProduceOutbox` appends at once, and what is sent again may be written twice; `staging.StageOutbox` stages every batch once and
in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final, NoReturn, Self, TypeVar

from ....protocol.errors import ErrorCode, RequestError, TriologError
from ....protocol.limits import KIB, MIB
from ....protocol.native.messages import (
    ACKS_NONE,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
    NewTopic,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    RequestMessage,
    ResponseMessage,
)
from ....protocol.types import TopicPartition
from ...client.backoff import Retries
from ...client.blocking.client import BlockingClient
from ...client.blocking.outbox import Blobs, Outbox, Refused
from ...client.config import ClientConfig
from ...client.errors import ConnectionLostError
from ...client.exchange import expect
from ...client.sending.topics import partition_count
from .server_access import NOBODY, ServerAccess, Servers

REQUEST_BYTES: Final = 4 * MIB
"""Size of a request. It is larger for a single larger batch, and smaller where the server takes less than twice as much."""
DEFAULT_PARTITIONS: Final = 0
"""Stands for the server's number of partitions of a topic that is created on demand."""
FRAME_RESERVE: Final = 4 * KIB
"""Room for the map around a batch that fills a frame."""


class TaskOutbox(Outbox):
    """An outbox of a Spark task; raises DeliveryError."""

    def __init__(self, link: ServerLink) -> None:
        super().__init__(link.client, link.timeout_ms)
        self._link = link

    @property
    def request_bytes(self) -> int:
        """As large as the server takes two of."""
        return min(REQUEST_BYTES, self._client.max_frame_bytes // 2)

    def put(self, partition: TopicPartition, batch: bytes) -> None:
        """Add a batch, which may be as large as a frame allows."""
        if len(batch) > self.request_bytes:
            self._check_size(partition, len(batch))
        super().put(partition, batch)

    def fail(self, lost: Sequence[Blobs], error: RequestError) -> NoReturn:
        """Name the topics."""
        topics = sorted({partition.topic for blobs in lost for partition in blobs})
        raise self._link.failure(f"writing to topic {', '.join(topics)}", error) from error

    def _check_size(self, partition: TopicPartition, size: int) -> None:
        try:
            most = self._client.hello().max_frame_bytes - FRAME_RESERVE
        except ConnectionLostError:
            return  # sending says so
        if size > most:
            raise DeliveryError(
                f"a record for topic {partition.topic} partition {partition.partition} makes a batch of {size} bytes, "
                f"above the {most} bytes of a request. Keep such values in files and write their names"
            )


class ProduceOutbox(TaskOutbox):
    """Appends at once. A batch whose answer was lost is sent again, so it may be there twice."""

    def __init__(self, link: ServerLink, acks: int) -> None:
        super().__init__(link)
        self._acks = acks

    def request(self, blobs: Blobs) -> RequestMessage:
        """A produce request."""
        return ProduceRequest(tuple(ProducePartition(*partition, data) for partition, data in blobs.items()), self._acks)

    def settle(self, blobs: Blobs, response: ResponseMessage) -> Refused | None:
        """Batches whose partition answered with something that may pass."""
        again: Blobs = {}
        error: RequestError | None = None
        for entry in expect(ProduceResponse, response).partitions:
            partition = TopicPartition(entry.topic, entry.partition)
            if entry.error is None:
                continue
            if not entry.error.retriable:
                raise self._link.refusal(f"writing to topic {entry.topic} partition {entry.partition}", entry.error)
            again[partition], error = blobs[partition], entry.error
        return Refused(again, error) if error is not None else None

    def flush(self) -> None:
        """As every outbox's; with acks 0 nothing is answered, so a question is, behind everything that was sent."""
        super().flush()
        if self._acks == ACKS_NONE:
            self._link.call(MetadataResponse, MetadataRequest(()), "writing with acks 0")


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
        servers: Servers,
        access: ServerAccess = NOBODY,
        *,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
    ) -> None:
        self._server = str(servers)
        self.timeout_ms = delivery_timeout_ms
        config = ClientConfig(
            client_id="triolog-spark",
            connect_timeout_ms=min(10_000, delivery_timeout_ms),
            request_timeout_ms=min(request_timeout_ms, delivery_timeout_ms),
            tls=access.tls,
            login=access.login,
        )
        self.client = BlockingClient(servers.source(), config)
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
        hint = ". Is `triolog serve` running there?" if error.code in _UNANSWERED else ""
        return GivenUpError(
            f"{self._server}: {what} failed for {self.timeout_ms} ms (kafka.delivery.timeout.ms), at last with {error}{hint}"
        )

    def refusal(self, what: str, error: RequestError | str) -> DeliveryError:
        """The error of something that is not tried again."""
        return DeliveryError(f"{self._server}: {what}: {error}")

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic; requested once. A missing topic is created where the server allows it, as
        Spark's Kafka sink does. DeliveryError names a topic that does not exist."""
        if topic not in self._counts:
            what = f"looking up topic {topic}"
            response = self.call(MetadataResponse, MetadataRequest((topic,)), what)
            if any(
                entry.error is not None and entry.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                for entry in response.topics
            ):
                self._create(topic)
                response = self.call(MetadataResponse, MetadataRequest((topic,)), what)
            try:
                self._counts[topic] = partition_count(topic, response)
            except RequestError as exc:
                raise self.refusal(what, exc) from exc
        return self._counts[topic]

    def _create(self, topic: str) -> None:
        """Create a topic on demand; another task may have done so. DeliveryError where the server does not allow it."""
        request = CreateTopicsRequest((NewTopic(topic, DEFAULT_PARTITIONS),), on_demand=True)
        [created] = self.call(CreateTopicsResponse, request, f"creating topic {topic}").topics
        if created.error is not None and created.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise self.refusal(f"creating topic {topic}", f"{created.error}. Create it with `triolog topics create`")
