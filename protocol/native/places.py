"""What nearly every call is about: partitions, and topics; and what became of them."""

from __future__ import annotations

from ..errors import RequestError
from ..types import TopicPartition
from .declaration import wire
from .kinds import ERROR, INT32, TOPIC
from .structs import Struct, struct


@struct
class Partition(Struct):
    """What is asked or said about one partition begins with its place."""

    topic: str = wire(TOPIC)
    partition: int = wire(INT32)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@struct
class PartitionAnswer(Partition):
    """With an error the rest of it means nothing."""

    error: RequestError | None = wire(ERROR, default=None)


@struct
class TopicAnswer(Struct):
    """With an error the rest of it means nothing."""

    name: str = wire(TOPIC)
    error: RequestError | None = wire(ERROR, default=None)
