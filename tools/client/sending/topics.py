"""A producer's state of a topic: its number of partitions and the partition of the next record. `Sending` is the common base of
both producers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ....protocol.errors import (
    ErrorCode,
    InvalidRequestError,
    RequestError,
    TriologError,
    UnknownTopicOrPartitionError,
)
from ....protocol.native.messages import MetadataResponse, ProduceRequest, ProduceResponse
from ....protocol.records.builder import Headers
from ....protocol.types import Bytes
from ..config import ProducerConfig
from ..errors import BufferFullError, ClosedError, ConnectionLostError
from ..procedures.groups import explain_refusal
from .accumulator import Accumulator
from .partition_queue import Batch, Delivery, PartitionQueue
from .partitioner import StickyPartitioner, partition_for_key

if TYPE_CHECKING:
    from ..transaction import TransactionCalls

STALE_CODES: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Answers after which a topic's number of partitions is asked for again."""


class ProducedTopic:
    """A topic that is produced to. Owned by its producer."""

    __slots__ = ("_name", "_queues", "_sticky")

    def __init__(self, name: str, partitions: int, accumulator: Accumulator, run_bytes: int) -> None:
        self._name = name
        self._queues = [accumulator.queue(name, partition) for partition in range(partitions)]
        self._sticky = StickyPartitioner(partitions, run_bytes)

    def queue_for(self, key: Bytes | None, partition: int | None, size_bytes: int) -> PartitionQueue:
        """Return the queue for a record: the given partition's, its key's, or the current one of records without a key."""
        queues = self._queues
        if partition is not None:
            if not 0 <= partition < len(queues):
                raise InvalidRequestError(f"no partition {partition} of {self._name}, which has 0 to {len(queues) - 1}")
            return queues[partition]
        if len(queues) == 1:
            return queues[0]
        if key is None:
            return queues[self._sticky.partition_for(size_bytes)]
        return queues[partition_for_key(key, len(queues))]


def partition_count(topic: str, response: MetadataResponse) -> int:
    """Return the topic's number of partitions, from a response about it alone; raises the topic's error."""
    for entry in response.topics:
        if entry.name == topic:
            if entry.error is not None:
                raise entry.error
            return len(entry.partitions)
    raise UnknownTopicOrPartitionError(f"the server's response leaves out topic {topic!r}")


class Sending:
    """The logic of both producers between program and server: records become batches, batches become requests, and responses
    settle the records."""

    def __init__(self, config: ProducerConfig, clock: Callable[[], float]) -> None:
        self._config = config
        self._accumulator = Accumulator(config, clock)
        self._topics: dict[str, ProducedTopic] = {}
        self._is_closed = False
        self._transactions: TransactionCalls | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._accumulator!r}{' closed' if self._is_closed else ''}>"

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records that are not settled, against `buffer_bytes`."""
        return self._accumulator.buffered_bytes

    def _take(
        self,
        topic: ProducedTopic,
        size: int,
        value: Bytes | None,
        key: Bytes | None,
        timestamp_ms: int | None,
        partition: int | None,
        headers: Headers,
    ) -> tuple[Batch, int, int, bool]:
        """The record's batch, its place there and its time; and whether something is full, or lingers from now on."""
        if self._is_closed:
            raise ClosedError("the producer is closed")
        if self._transactions is not None:
            self._transactions.state.check_sending()
        elif self._accumulator.fatal is not None:
            raise self._accumulator.fatal.with_traceback(None)
        queue = topic.queue_for(key, partition, size)
        timestamp = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        had_open = queue.open
        batch, index = self._accumulator.append(queue, size, timestamp, key, value, headers)
        return batch, index, timestamp, batch is not had_open

    def _learn(self, topic: str, described: MetadataResponse, max_frame_bytes: int) -> ProducedTopic:
        partitions = partition_count(topic, described)
        self._accumulator.limit_frames(max_frame_bytes)
        return self._topics.setdefault(topic, ProducedTopic(topic, partitions, self._accumulator, self._config.batch_bytes))

    def _no_room(self, size: int) -> BufferFullError:
        return BufferFullError(
            f"no space for a record of {size} bytes within max_block_ms={self._config.max_block_ms}: "
            f"{self.buffered_bytes} of {self._config.buffer_bytes} bytes wait for their acknowledgement"
        )

    def _request(self, deliveries: Sequence[Delivery]) -> ProduceRequest:
        messages = tuple(delivery.to_message() for delivery in deliveries)
        config = self._config
        return ProduceRequest(messages, config.acks, config.request_timeout_ms, config.transactional_id)

    def _settle(self, deliveries: Sequence[Delivery], response: ProduceResponse | None) -> None:
        """An answer, or with acks 0 none."""
        if response is None:
            for delivery in deliveries:
                self._accumulator.settle_unanswered(delivery)
            return
        entries = {(entry.topic, entry.partition): entry for entry in response.partitions}
        for delivery in deliveries:
            entry = entries.get((delivery.queue.topic, delivery.queue.partition))
            if entry is None:
                self._fail([delivery], ConnectionLostError("the server's response leaves out this partition"))
                continue
            self._accumulator.settle(delivery, entry)
            if entry.error is not None and entry.error.code in STALE_CODES:
                self._topics.pop(entry.topic, None)

    def _fail(self, deliveries: Iterable[Delivery], error: TriologError) -> None:
        for delivery in deliveries:
            self._accumulator.fail(delivery, error)

    def _refuse_producer(self, error: TriologError) -> None:
        """There is no producer id, and there will be none."""
        self._accumulator.end(explain_refusal(error) if isinstance(error, RequestError) else error)
