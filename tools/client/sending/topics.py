"""What a producer knows about a topic: how many partitions it has, and which of them the next record goes to."""

from __future__ import annotations

from typing import Final

from ....protocol.errors import ErrorCode, InvalidRequestError, UnknownTopicOrPartitionError
from ....protocol.native.messages import MetadataResponse
from ....protocol.types import Bytes
from .accumulator import Accumulator
from .partition_queue import PartitionQueue
from .partitioner import StickyPartitioner, partition_for_key

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
        """Where a record goes: to the partition asked for, its key's, or the one records without a key stay on for now."""
        queues = self._queues
        if partition is not None:
            if not 0 <= partition < len(queues):
                raise InvalidRequestError(f"partition {partition} of {self._name}, which has 0 to {len(queues) - 1}")
            return queues[partition]
        if len(queues) == 1:
            return queues[0]
        if key is None:
            return queues[self._sticky.partition_for(size_bytes)]
        return queues[partition_for_key(key, len(queues))]


def partition_count(topic: str, response: MetadataResponse) -> int:
    """How many partitions the topic has, from an answer that was asked about it alone; raises the topic's error."""
    for entry in response.topics:
        if entry.name == topic:
            if entry.error is not None:
                raise entry.error
            return len(entry.partitions)
    raise UnknownTopicOrPartitionError(f"the server's answer leaves out topic {topic!r}")
