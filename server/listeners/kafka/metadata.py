"""Metadata: brokers, topics, and who leads which partition. DescribeTopicPartitions: topics and their partitions by portions,
in the order of their names. Source: DescribeTopicPartitionsRequestHandler, KIP-966.

A topic that may be made by being asked for is made at once: the answer has it, where Kafka lets the client ask again. One that
was deleted a moment ago is made too, but said to be unknown once more.

In a portion, what may not be seen uses up no room and is no place to go on from, so this asks what the client may see by
itself: topics that are asked for by name have the error, behind all others and beside the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import attrs

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages.topics import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    TopicPartitionCursor,
)
from ....protocol.limits import INT32_MIN
from ...broker import TopicMetadata, check_topic_name, is_internal
from ...loop.procedures import PAUSE, Procedure, in_turns, mapped
from ..access.rules import note_change
from .audited import KAFKA
from .door import NO_TOPIC_ID, Call

PARTITIONS_PER_TURN: Final = 256
"""Of an answer, that are described before other tasks run."""
PARTITIONS_PER_TOPIC: Final = 16
"""A topic costs as much as so many of them."""
NO_LEADER: Final = -1
_SEE_TOPIC: Final = (AclOperation.DESCRIBE, ResourceType.TOPIC)
TOLD_OPERATIONS: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.LEADER_NOT_AVAILABLE}
)
"""Kafka tells what a client might do with a topic also where there is none of that name."""
FIRST_WITH_TOPIC_IDS: Final = 12
"""Versions 10 and 11 have a field for them, and are refused when it is used (Kafka: KafkaApis)."""


def metadata(call: Call, body: MetadataRequest) -> Procedure[MetadataResponse]:
    """All topics for a null list (an empty one in version 0), else those asked for, by name or from version 10 on by id."""
    topics: list[MetadataResponseTopic] = []
    left = PARTITIONS_PER_TURN
    is_about_all = body.topics is None or (call.version == 0 and not body.topics)
    once = {(each.name, each.topic_id): each for each in body.topics or ()}
    for each in _all_topics(call) if is_about_all else once.values():
        if left <= 0:
            left = PARTITIONS_PER_TURN
            yield PAUSE
        known: Any = _known(call, each, may_create=body.allow_auto_topic_creation and not is_about_all)
        if known is None:
            known = yield partial(_made, call, each)
        if known.__class__ is TopicMetadata:
            left -= len(known.leader_epochs)
            known = yield from _found(call, known)
        elif is_about_all:
            continue  # it was deleted meanwhile
        left -= PARTITIONS_PER_TOPIC
        topics.append(known)
    if body.include_topic_authorized_operations:
        yield from mapped(partial(_tell_operations, call), topics)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=None)
            for node in call.door.nodes(call.session)
        ],
        cluster_id=call.broker.cluster_id,
        controller_id=call.door.node_id,
        topics=topics,
        cluster_authorized_operations=call.operations_on_cluster() if body.include_cluster_authorized_operations else INT32_MIN,
    )


def _all_topics(call: Call) -> Iterator[MetadataRequestTopic]:
    """All topics that the client may see, as if it had asked for them."""
    for name in call.broker.topics.names():
        if call.authorize(*_SEE_TOPIC, name, quietly=True):
            yield MetadataRequestTopic(name=name, topic_id=NO_TOPIC_ID)


def _tell_operations(call: Call, topic: MetadataResponseTopic) -> None:
    if topic.error_code in TOLD_OPERATIONS:
        topic.topic_authorized_operations = call.authorized_operations(ResourceType.TOPIC, topic.name or "")


def _known(call: Call, asked: MetadataRequestTopic, *, may_create: bool) -> TopicMetadata | MetadataResponseTopic | None:
    """Return the metadata of a topic, or the error entry for the client; None if the topic has to be created."""
    by_id = asked.topic_id != NO_TOPIC_ID
    try:
        if call.version < FIRST_WITH_TOPIC_IDS and (by_id or asked.name is None):
            raise InvalidRequestError(
                f"Metadata v{call.version} identifies topics by name. By id needs v{FIRST_WITH_TOPIC_IDS}"
            )
        name = call.topic_name(asked.name or "", asked.topic_id, by_id=by_id)
        call.check_authorized(*_SEE_TOPIC, name)
        try:
            return call.broker.topics.metadata(name)
        except RequestError:
            check_topic_name(name)
            if not may_create or by_id or not call.broker.config.auto_create_topics_enable or is_internal(name):
                raise
        return None
    except RequestError as exc:
        name_or_none = asked.name or "" if call.version < FIRST_WITH_TOPIC_IDS else asked.name
        return _missing(name_or_none, asked.topic_id, exc.code)


async def _made(call: Call, asked: MetadataRequestTopic) -> TopicMetadata | MetadataResponseTopic:
    """A topic that is created by being asked for, or what the client is told instead."""
    name = asked.name or ""
    codes: list[ErrorCode] = []
    try:
        if not call.authorize(AclOperation.CREATE, ResourceType.CLUSTER):
            call.check_authorized(AclOperation.CREATE, ResourceType.TOPIC, name)
    except RequestError as exc:
        return _missing(asked.name, asked.topic_id, exc.code)
    try:
        return await call.broker.topics.create_asked_for(name, call.broker.config.num_partitions)
    except RequestError as exc:
        if exc.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            codes = [exc.code]
        return _missing(asked.name, asked.topic_id, exc.code)
    finally:
        note_change(call.broker.security.audit, call, KAFKA, "Metadata", [name], codes)


def _found(call: Call, topic: TopicMetadata) -> Procedure[MetadataResponseTopic]:
    describe = partial(_partition, [call.door.node_id])
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=(yield from mapped(describe, enumerate(topic.leader_epochs), PARTITIONS_PER_TURN)),
    )


def _partition(nodes: list[int], partition: tuple[int, int | RequestError]) -> MetadataResponsePartition:
    """Describe a partition. An offline partition has no leader, so that clients retry until it is online again."""
    number, epoch = partition
    if isinstance(epoch, RequestError):
        return MetadataResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=number,
            leader_id=NO_LEADER,
            replica_nodes=nodes,
            isr_nodes=[],
            offline_replicas=nodes,
        )
    return MetadataResponsePartition(
        partition_index=number,
        leader_id=nodes[0],
        leader_epoch=epoch,
        replica_nodes=nodes,
        isr_nodes=nodes,
        offline_replicas=[],
    )


def _missing(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    """Return the error entry of a missing topic. An internal topic is marked as internal even while it does not exist."""
    its_own = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name is not None and is_internal(name)
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=its_own, partitions=[])


MAX_PARTITIONS: Final = 2000
STEPS_PER_PARTITION: Final = 2
"""In one answer (Kafka: max.request.partition.size.limit)."""


async def describe_topic_partitions(call: Call, body: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """The topics asked for, or all, from the cursor on and up to the limit; where it goes on is in the answer."""
    names = sorted({topic.name for topic in body.topics} or call.broker.topics.names())
    _check_cursor(body.cursor, names, is_asked_by_name=bool(body.topics))
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
        raise InvalidRequestError(f"the cursor is at topic {cursor.topic_name!r}, which the request does not name")


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
        self.topics.append(await _described(self.call, metadata, range(first, last), operations))
        self.left -= max(last - first, 0)
        if last < len(metadata.leader_epochs):
            self.next = TopicPartitionCursor(topic_name=name, partition_index=last)


async def _described(call: Call, topic: TopicMetadata, numbers: range, operations: int) -> DescribeTopicPartitionsResponseTopic:
    node, partitions = call.door.node_id, list[DescribeTopicPartitionsResponsePartition]()
    for start in range(0, len(numbers), PARTITIONS_PER_TURN):
        some = numbers[start : start + PARTITIONS_PER_TURN]
        partitions += [_described_partition(node, number, topic.leader_epochs[number]) for number in some]
        await call.broker.disk.turns.checkpoint(STEPS_PER_PARTITION * len(some))
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _described_partition(node: int, number: int, epoch: int | RequestError) -> DescribeTopicPartitionsResponsePartition:
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
