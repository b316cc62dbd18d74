"""DescribeTopicPartitions: topics and their partitions by portions, in the order of their names. Source:
DescribeTopicPartitionsRequestHandler, KIP-966.

What may not be seen uses up no room and is no place to go on from, so this asks what the client may see by itself: topics that
are asked for by name have the error, behind all others and beside the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages.topics import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicPartitionCursor,
)
from ....protocol.limits import INT32_MIN
from ...broker import TopicMetadata, check_topic_name
from ...loop.procedures import in_turns
from .door import NO_TOPIC_ID, Call

MAX_PARTITIONS: Final = 2000
PARTITIONS_PER_TURN: Final = 256
STEPS_PER_PARTITION: Final = 2
"""In one answer (Kafka: max.request.partition.size.limit)."""
NO_LEADER: Final = -1
_SEE_TOPIC: Final = (AclOperation.DESCRIBE, ResourceType.TOPIC)


async def describe_topic_partitions(call: Call, body: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """The topics asked for, or all, from the cursor on and up to the limit; where it goes on is in the answer."""
    names = sorted({topic.name for topic in body.topics} or call.broker.topics.names())
    try:
        _check_cursor(body.cursor, names, is_asked_by_name=bool(body.topics))
    except RequestError as exc:
        return DescribeTopicPartitionsResponse(topics=[_refused(topic.name, exc.code) for topic in body.topics])
    start = body.cursor or TopicPartitionCursor(topic_name="", partition_index=0)
    portion = Portion(call, left=min(max(body.response_partition_limit, 1), MAX_PARTITIONS))
    hidden: list[DescribeTopicPartitionsResponseTopic] = []
    async for name in in_turns(names):
        if name < start.topic_name:
            continue
        if call.authorize(*_SEE_TOPIC, name, quietly=True):
            await portion.take(name, start.partition_index if name == start.topic_name else 0)
        elif body.topics:
            hidden.append(_refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return DescribeTopicPartitionsResponse(topics=portion.topics + hidden, next_cursor=portion.next)


def _check_cursor(cursor: TopicPartitionCursor | None, names: Sequence[str], *, is_asked_by_name: bool) -> None:
    if cursor is None:
        return
    if cursor.partition_index < 0:
        raise InvalidRequestError(f"the cursor is at partition {cursor.partition_index}")
    if is_asked_by_name and cursor.topic_name not in names:
        raise InvalidRequestError(f"the cursor is at topic {cursor.topic_name!r}, which is not asked for")


@attrs.define
class Portion:
    """An answer that is being filled; there is room for `left` more partitions."""

    call: Call
    left: int
    topics: list[DescribeTopicPartitionsResponseTopic] = attrs.field(factory=list)
    next: TopicPartitionCursor | None = None

    async def take(self, name: str, first: int) -> None:
        """Add a topic from partition `first` on, as far as it fits."""
        if self.next is not None:
            return
        if not self.left:
            self.next = TopicPartitionCursor(topic_name=name, partition_index=0)
            return
        operations = self.call.authorized_operations(ResourceType.TOPIC, name)
        try:
            check_topic_name(name)
            metadata = self.call.broker.topics.metadata(name)
        except RequestError as exc:
            self.topics.append(_refused(name, exc.code, operations))
            return
        last = min(len(metadata.leader_epochs), first + self.left)
        self.topics.append(await _found(self.call, metadata, range(first, last), operations))
        self.left -= max(last - first, 0)
        if last < len(metadata.leader_epochs):
            self.next = TopicPartitionCursor(topic_name=name, partition_index=last)


async def _found(call: Call, topic: TopicMetadata, numbers: range, operations: int) -> DescribeTopicPartitionsResponseTopic:
    node, partitions = call.door.node_id, list[DescribeTopicPartitionsResponsePartition]()
    for start in range(0, len(numbers), PARTITIONS_PER_TURN):
        some = numbers[start : start + PARTITIONS_PER_TURN]
        partitions += [_partition(node, number, topic.leader_epochs[number]) for number in some]
        await call.broker.disk.turns.checkpoint(STEPS_PER_PARTITION * len(some))
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _partition(node: int, number: int, epoch: int | RequestError) -> DescribeTopicPartitionsResponsePartition:
    """Describe a partition. An offline partition has no leader, and its replica is not available."""
    is_offline = isinstance(epoch, RequestError)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if is_offline else ErrorCode.NONE,
        partition_index=number,
        leader_id=NO_LEADER if is_offline else node,
        leader_epoch=NO_LEADER if isinstance(epoch, RequestError) else epoch,
        replica_nodes=[node],
        isr_nodes=[] if is_offline else [node],
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[node] if is_offline else [],
    )


def _refused(name: str, code: int, operations: int = INT32_MIN) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=NO_TOPIC_ID,
        is_internal=False,
        partitions=[],
        topic_authorized_operations=operations,
    )
