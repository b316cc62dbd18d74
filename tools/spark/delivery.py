"""Getting record batches to a server that may be restarted meanwhile: several requests in flight, repeated until a deadline.

`ServerLink` is the connection of one writer and names the server in every error. An outbox collects batches into requests:
`ProduceOutbox` appends at once, and what is sent again may be written twice; `StageOutbox` asks the server, after a connection
broke, how much has arrived, and sends the rest, so that what is staged is every batch once and in order.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

import attrs

from ...protocol.errors import ErrorCode, RequestError, TriologError
from ...protocol.limits import KIB, MIB
from ...protocol.native.messages import (
    ACKS_NONE,
    MetadataRequest,
    MetadataResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    RequestMessage,
    ResponseMessage,
    StagePartition,
    StageRequest,
    StageResponse,
)
from ...protocol.records.crc32c import crc32c
from ...protocol.types import TopicPartition
from ..client.backoff import Backoff
from ..client.blocking_client import BlockingClient
from ..client.blocking_connection import BlockingConnection
from ..client.config import ClientConfig
from ..client.errors import ConnectionLostError
from ..client.exchange import expect, is_answered
from ..client.topics import partition_count

R = TypeVar("R", bound=ResponseMessage)

REQUEST_BYTES: Final = 4 * MIB
"""Of one request, unless a single batch is larger."""
WINDOW: Final = 4
"""Requests in flight, so that the server writes one while the next is encoded."""
FRAME_RESERVE: Final = 4 * KIB
"""Room for the map around a batch that fills a frame."""
_RETRY_MS: Final = (50, 1_000)

Blobs = dict[TopicPartition, bytes]


class Refused(NamedTuple):
    """Batches that were not taken, for a reason that may pass."""

    blobs: Blobs
    error: RequestError


class DeliveryError(TriologError):
    """Records could not be handed over: who said so, of which topics, and why. What Spark shows when a task fails."""


class ServerLink:
    """One server for one writer. Connects at the first call. Owner: one thread; never used behind a fork."""

    def __init__(
        self, address: tuple[str, int], *, delivery_timeout_ms: int = 120_000, request_timeout_ms: int = 30_000
    ) -> None:
        self._server = f"{address[0]}:{address[1]}"
        self._timeout_ms = delivery_timeout_ms
        config = ClientConfig(
            client_id="triolog-spark",
            connect_timeout_ms=min(10_000, delivery_timeout_ms),
            request_timeout_ms=min(request_timeout_ms, delivery_timeout_ms),
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

    def once(self, kind: type[R], request: RequestMessage) -> R:
        """One call, not repeated."""
        return expect(kind, self._client.call(request))

    def call(self, kind: type[R], request: RequestMessage, what: str) -> R:
        """A call that may be repeated, until it is answered. DeliveryError past the deadline, or for any other error."""
        retries = self.retries(what)
        while True:
            try:
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
    _first: float | None = None

    def failed(self, error: RequestError) -> None:
        """Wait before the next attempt; DeliveryError when there is to be none."""
        if not error.retriable:
            raise self.final(error) from error
        now = time.monotonic()
        if self._first is None:
            self._first = now
        left = self._first + self._timeout_ms / 1000 - now
        if left <= 0:
            raise DeliveryError(
                f"{self._server}: {self._what} failed for {self._timeout_ms} ms (kafka.delivery.timeout.ms), at last with "
                f"{error}; is `triolog serve` running there?"
            ) from error
        time.sleep(min(left, self._backoff.pause_s()))

    def final(self, error: RequestError | str) -> DeliveryError:
        """The error of something that is not tried again."""
        return DeliveryError(f"{self._server}: {self._what}: {error}")


@attrs.define(eq=False)
class _Sent:
    blobs: Blobs
    connection: BlockingConnection | None = None
    correlation_id: int = 0


class Outbox(ABC):
    """Sends record batches in requests, WINDOW of them in flight; those of a partition in the order in which they were put."""

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self._open: dict[TopicPartition, list[bytes]] = {}
        self._open_bytes = 0
        self._sent: deque[_Sent] = deque()

    def put(self, partition: TopicPartition, batch: bytes) -> None:
        """Take one record batch; sends and waits when enough has come together. DeliveryError."""
        if self._open_bytes and self._open_bytes + len(batch) > REQUEST_BYTES:
            self._send_open()
        self._open.setdefault(partition, []).append(batch)
        self._open_bytes += len(batch)

    def flush(self) -> None:
        """Send what is left and wait until all of it is answered. DeliveryError."""
        if self._open:
            self._send_open()
        while self._sent:
            self._settle_oldest()

    @abstractmethod
    def request(self, blobs: Blobs) -> RequestMessage:
        """The request that carries these batches."""

    @abstractmethod
    def settle(self, blobs: Blobs, response: ResponseMessage) -> Refused | None:
        """Take an answer in; what of the batches has to be sent again. DeliveryError."""

    @abstractmethod
    def missing(self, sent: Sequence[Blobs]) -> list[Blobs]:
        """What of these unanswered requests has to be sent again. RequestError when that cannot be asked now."""

    def _send_open(self) -> None:
        blobs = {partition: b"".join(batches) for partition, batches in self._open.items()}
        self._open, self._open_bytes = {}, 0
        while len(self._sent) >= WINDOW:
            self._settle_oldest()
        self._check_size(blobs)
        sent = _Sent(blobs)
        self._sent.append(sent)
        request = self.request(blobs)
        try:
            connection = self._link.connected()
            sent.correlation_id = connection.start(request, self._link.deadline())
        except RequestError as exc:
            self._recover(exc)
            return
        sent.connection = connection
        if not is_answered(request):
            self._sent.pop()

    def _settle_oldest(self) -> None:
        sent = self._sent[0]
        assert sent.connection is not None
        try:
            response = sent.connection.finish(sent.correlation_id, self._link.deadline())
        except RequestError as exc:
            sent.connection = None
            self._recover(exc)
            return
        self._sent.popleft()
        if refused := self.settle(sent.blobs, response):
            self._resend([refused.blobs], refused.error)

    def _recover(self, error: RequestError) -> None:
        """Bring what is in flight over, one request at a time."""
        lost: list[Blobs] = []
        for sent in self._sent:
            if sent.connection is None or sent.connection.is_lost:
                lost.append(sent.blobs)
                continue
            try:
                response = sent.connection.finish(sent.correlation_id, self._link.deadline())
            except RequestError:  # the first error is the one that counts
                lost.append(sent.blobs)
            else:
                if refused := self.settle(sent.blobs, response):
                    lost.append(refused.blobs)
        self._sent.clear()
        self._resend(lost, error)

    def _resend(self, lost: list[Blobs], error: RequestError) -> None:
        topics = sorted({partition.topic for blobs in lost for partition in blobs})
        retries = self._link.retries(f"writing to topic {', '.join(topics)}")
        while True:
            retries.failed(error)
            try:
                lost = self.missing(lost)
                while lost:
                    refused = self._exchange(lost[0])
                    lost = lost[1:] if refused is None else [refused.blobs, *lost[1:]]
                    if refused is not None:
                        raise refused.error
                return
            except RequestError as exc:
                error = exc

    def _exchange(self, blobs: Blobs) -> Refused | None:
        """One request and its answer."""
        request = self.request(blobs)
        connection, deadline = self._link.connected(), self._link.deadline()
        correlation_id = connection.start(request, deadline)
        return self.settle(blobs, connection.finish(correlation_id, deadline)) if is_answered(request) else None

    def _check_size(self, blobs: Blobs) -> None:
        """One batch may be as large as a frame allows."""
        size = sum(map(len, blobs.values()))
        if size <= REQUEST_BYTES:
            return
        try:
            most = self._link.connected().hello.max_frame_bytes - FRAME_RESERVE
        except ConnectionLostError:
            return  # `_start` says so
        if size > most:
            (partition,) = blobs
            raise DeliveryError(
                f"a record for topic {partition.topic} partition {partition.partition} makes a batch of {size} bytes, above "
                f"the {most} bytes that a request may have; keep such values in files and write their names"
            )


class ProduceOutbox(Outbox):
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
                raise self._link.retries(f"writing to topic {entry.topic} partition {entry.partition}").final(entry.error)
            again[partition], error = blobs[partition], entry.error
        return Refused(again, error) if error is not None else None

    def missing(self, sent: Sequence[Blobs]) -> list[Blobs]:
        """All of them: nobody knows."""
        return list(sent)

    def flush(self) -> None:
        """As every outbox's; with acks 0 nothing is answered, so a question is, behind everything that was sent."""
        super().flush()
        if self._acks == ACKS_NONE:
            self._link.call(MetadataResponse, MetadataRequest(()), "writing with acks 0")


@attrs.frozen
class StagedBytes:
    """What was staged for one partition: its size, and the CRC-32C of all of it."""

    size_bytes: int = 0
    crc: int = 0

    def then(self, data: bytes) -> StagedBytes:
        """With more behind it."""
        return StagedBytes(self.size_bytes + len(data), crc32c(data, self.crc))


class StageOutbox(Outbox):
    """Stages batches of one task of a version. `staged` is, after `flush`, what the commit has to name.

    A server that stamps or compresses a topic's batches anew stages other bytes than it was sent. What arrived cannot be told
    from sizes and CRCs then, so a lost connection ends the task, and Spark runs it again.
    """

    def __init__(self, link: ServerLink, application: str, version: int, task: str) -> None:
        super().__init__(link)
        self._application = application
        self._version = version
        self._task = task
        self._was_lost = False
        self._rebuilt: set[TopicPartition] = set()
        self.staged: dict[TopicPartition, StagedBytes] = {}

    def request(self, blobs: Blobs) -> RequestMessage:
        """A stage request."""
        partitions = tuple(StagePartition(*partition, data) for partition, data in blobs.items())
        return StageRequest(self._application, self._version, self._task, partitions)

    def settle(self, blobs: Blobs, response: ResponseMessage) -> Refused | None:
        """None: an entry that failed ends the task, because batches behind it may be staged already."""
        for partition, found in self._entries(response):
            expected = self.staged.get(partition, StagedBytes()).then(blobs[partition])
            if found != expected:
                if self._was_lost:
                    raise self._out_of_step(partition, found, expected)
                self._rebuilt.add(partition)
            self.staged[partition] = found
        return None

    def missing(self, sent: Sequence[Blobs]) -> list[Blobs]:
        """What the server does not have yet, by the sizes and CRCs that it answers to a request without batches."""
        self._was_lost = True
        partitions = {partition: b"" for blobs in sent for partition in blobs}
        if not partitions:
            return []
        left = [dict(blobs) for blobs in sent]
        for partition, found in self._entries(self._link.once(StageResponse, self.request(partitions))):
            known = self.staged.get(partition, StagedBytes())
            for blobs in left:
                if found == known:
                    break
                if partition in blobs:
                    known = known.then(blobs.pop(partition))
            if found != known or partition in self._rebuilt:
                raise self._out_of_step(partition, found, known)
            self.staged[partition] = known
        return [blobs for blobs in left if blobs]

    def _entries(self, response: ResponseMessage) -> Iterator[tuple[TopicPartition, StagedBytes]]:
        for entry in expect(StageResponse, response).partitions:
            partition = TopicPartition(entry.topic, entry.partition)
            if entry.error is not None:
                raise self._complaint(partition).final(entry.error)
            yield partition, StagedBytes(entry.size_bytes, entry.crc)

    def _out_of_step(self, partition: TopicPartition, found: StagedBytes, expected: StagedBytes) -> DeliveryError:
        return self._complaint(partition).final(
            f"after a lost connection the server has staged {found.size_bytes} bytes with CRC {found.crc:08x}, not "
            f"{expected.size_bytes} with {expected.crc:08x}; the task has to be run again"
        )

    def _complaint(self, partition: TopicPartition) -> Retries:
        return self._link.retries(f"staging for topic {partition.topic} partition {partition.partition}")
