"""The outboxes of a task: `ProduceOutbox` appends at once, and what is sent again may be written twice; `staging.StageOutbox`
sees to it that what is staged is every batch once and in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

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
from ...client.blocking.outbox import Blobs, Outbox, Refused
from ...client.errors import ConnectionLostError
from ...client.exchange import expect
from .server_link import DeliveryError, ServerLink

REQUEST_BYTES: Final = 4 * MIB
"""Size of a request. It is larger for a single larger batch, and smaller where the server takes less than twice as much."""
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
                f"a record for topic {partition.topic} partition {partition.partition} makes a batch of {size} bytes, above "
                f"the {most} bytes that a request may have; keep such values in files and write their names"
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
