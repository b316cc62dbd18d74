"""Getting record batches to a server that may be restarted meanwhile: several requests in flight, repeated until a deadline.

An outbox collects batches into requests. `ProduceOutbox` appends at once, and what is sent again may be written twice;
`staging.StageOutbox` sees to it that what is staged is every batch once and in order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import attrs

from ....protocol.errors import RequestError
from ....protocol.limits import KIB, MIB
from ....protocol.native.messages import (
    ACKS_NONE,
    MetadataRequest,
    MetadataResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    RequestMessage,
    ResponseMessage,
)
from ....protocol.types import TopicPartition
from ...client.blocking.connection import BlockingConnection
from ...client.errors import ConnectionLostError
from ...client.exchange import expect, is_answered
from .server_link import DeliveryError, ServerLink

REQUEST_BYTES: Final = 4 * MIB
"""Size of a request. It is larger for a single larger batch, and smaller where the server takes less than twice as much."""
WINDOW: Final = 4
"""Requests in flight, so that the server writes one while the next is encoded."""
FRAME_RESERVE: Final = 4 * KIB
"""Room for the map around a batch that fills a frame."""

Blobs = dict[TopicPartition, bytes]


class Refused(NamedTuple):
    """Batches that were not taken, for a reason that may pass."""

    blobs: Blobs
    error: RequestError


@attrs.define(eq=False, repr=False)
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
        self._was_lost = False
        """A request was left without an answer, so that nobody knows what became of it."""
        self._again: set[TopicPartition] = set()
        """Partitions of batches that have to be sent again, while what was sent behind them is settled."""

    def put(self, partition: TopicPartition, batch: bytes) -> None:
        """Take one record batch; sends and waits when enough has come together. DeliveryError."""
        if self._open_bytes and self._open_bytes + len(batch) > self._request_bytes:
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
            self._recover(refused.error, refused.blobs)

    def _recover(self, error: RequestError, *refused: Blobs) -> None:
        """Bring what is in flight to its end, then send what of it did not arrive, one request at a time."""
        left = list(refused)
        self._again.update(*left)
        for sent in self._sent:
            if (blobs := self._left_of(sent)) is not None:
                left.append(blobs)
                self._again.update(blobs)
        self._sent.clear()
        self._again.clear()
        self._resend(left, error)

    def _left_of(self, sent: _Sent) -> Blobs | None:
        """What has to be sent again of a request that is in flight or lost."""
        if sent.connection is not None and not sent.connection.is_lost:
            try:
                response = sent.connection.finish(sent.correlation_id, self._link.deadline())
            except RequestError:  # the first error is the one that counts
                pass
            else:
                refused = self.settle(sent.blobs, response)
                return None if refused is None else refused.blobs
        self._was_lost = True
        return sent.blobs

    def _resend(self, lost: list[Blobs], error: RequestError) -> None:
        topics = sorted({partition.topic for blobs in lost for partition in blobs})
        retries = self._link.retries(f"writing to topic {', '.join(topics)}")
        while True:
            retries.failed(error)
            try:
                with self._link.within(retries):
                    lost = self.missing(lost)
                    while lost:
                        if refused := self._exchange(lost[0]):
                            lost, error = [refused.blobs, *lost[1:]], refused.error
                            break
                        lost = lost[1:]
            except RequestError as exc:
                error, self._was_lost = exc, True
            if not lost:
                return

    def _exchange(self, blobs: Blobs) -> Refused | None:
        """One request and its answer."""
        request = self.request(blobs)
        connection, deadline = self._link.connected(), self._link.deadline()
        correlation_id = connection.start(request, deadline)
        return self.settle(blobs, connection.finish(correlation_id, deadline)) if is_answered(request) else None

    @property
    def _request_bytes(self) -> int:
        return min(REQUEST_BYTES, self._link.max_frame_bytes // 2)

    def _check_size(self, blobs: Blobs) -> None:
        """One batch may be as large as a frame allows."""
        size = sum(map(len, blobs.values()))
        if size <= self._request_bytes:
            return
        try:
            most = self._link.connected().hello.max_frame_bytes - FRAME_RESERVE
        except ConnectionLostError:
            return  # sending says so
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
