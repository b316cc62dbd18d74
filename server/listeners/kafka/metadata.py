"""Metadata: brokers, topics, and who leads which partition.

A topic that may be made by being asked for is made at once: the answer has it, where Kafka lets the client ask again. One that
was deleted a moment ago is made too, but said to be unknown once more.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Final

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages.topics import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ....protocol.limits import INT32_MIN
from ...broker import TopicMetadata, check_topic_name, is_internal
from ..access.audited import note_change
from ..connections.in_turns import in_turns
from .access.audited import KAFKA
from .door import NO_TOPIC_ID, Call

TOPICS_AT_ONCE: Final = 16
PARTITIONS_AT_ONCE: Final = 256
"""Of a request that may be answered without a turn of the scheduler, and of its topics."""
STEPS_PER_PARTITION: Final = 2
NO_LEADER: Final = -1
_SEE_TOPIC: Final = (AclOperation.DESCRIBE, ResourceType.TOPIC)
TOLD_OPERATIONS: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.LEADER_NOT_AVAILABLE}
)
"""Kafka tells what a client might do with a topic also where there is none of that name."""
FIRST_WITH_TOPIC_IDS: Final = 12
"""Versions 10 and 11 have a field for them, and are refused when it is used (Kafka: KafkaApis)."""


def metadata_at_once(call: Call, body: MetadataRequest) -> MetadataResponse | None:
    """`metadata` of few topics that are named, none of which is to be made."""
    if _is_about_all(call, body) or len(body.topics or ()) > TOPICS_AT_ONCE:
        return None
    topics: list[MetadataResponseTopic] = []
    left = PARTITIONS_AT_ONCE
    for each in _once(body):
        topic = _known(call, each, may_create=body.allow_auto_topic_creation)
        if topic is None:
            return None
        if type(topic) is TopicMetadata:
            left -= len(topic.leader_epochs)
            if left < 0:
                return None
            topic = _found(call, topic)
        topics.append(topic)
    if body.include_topic_authorized_operations:
        for topic in topics:
            _tell_operations(call, topic)
    return _response(call, body, topics)


async def metadata(call: Call, body: MetadataRequest) -> MetadataResponse:
    """All topics for a null list (an empty one in version 0), else those asked for, by name or from version 10 on by id."""
    if _is_about_all(call, body):
        names = [name for name in call.broker.topics.names() if call.authorize(*_SEE_TOPIC, name, quietly=True)]
        topics = []
        async for name in in_turns(names):
            with suppress(RequestError):  # it was deleted meanwhile
                topics.append(await _found_in_turns(call, call.broker.topics.metadata(name)))
    else:
        topics = [await _topic(call, each, may_create=body.allow_auto_topic_creation) async for each in in_turns(_once(body))]
    if body.include_topic_authorized_operations:
        async for topic in in_turns(topics):
            _tell_operations(call, topic)
    return _response(call, body, topics)


def _is_about_all(call: Call, body: MetadataRequest) -> bool:
    return body.topics is None or (call.version == 0 and not body.topics)


def _once(body: MetadataRequest) -> Collection[MetadataRequestTopic]:
    """The topics that are named, each once."""
    return {(each.name, each.topic_id): each for each in body.topics or ()}.values()


def _tell_operations(call: Call, topic: MetadataResponseTopic) -> None:
    if topic.error_code in TOLD_OPERATIONS:
        topic.topic_authorized_operations = call.authorized_operations(ResourceType.TOPIC, topic.name or "")


def _response(call: Call, body: MetadataRequest, topics: list[MetadataResponseTopic]) -> MetadataResponse:
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


async def _topic(call: Call, asked: MetadataRequestTopic, *, may_create: bool) -> MetadataResponseTopic:
    known = _known(call, asked, may_create=may_create)
    if isinstance(known, MetadataResponseTopic):
        return known
    try:
        return await _found_in_turns(call, known or await _made(call, asked.name or ""))
    except RequestError as exc:
        return _missing(asked.name, asked.topic_id, exc.code)


def _known(call: Call, asked: MetadataRequestTopic, *, may_create: bool) -> TopicMetadata | MetadataResponseTopic | None:
    """What is known of a topic, or what the client is told where there is none; None where it is to be made."""
    by_id = asked.topic_id != NO_TOPIC_ID
    try:
        if call.version < FIRST_WITH_TOPIC_IDS and (by_id or asked.name is None):
            raise InvalidRequestError(f"Metadata v{call.version} asks by name; by id v{FIRST_WITH_TOPIC_IDS} does")
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


async def _made(call: Call, name: str) -> TopicMetadata:
    """A topic that is made by being asked for. Raises RequestError."""
    if not call.authorize(AclOperation.CREATE, ResourceType.CLUSTER):
        call.check_authorized(AclOperation.CREATE, ResourceType.TOPIC, name)
    codes: list[ErrorCode] = []
    try:
        return await call.broker.topics.create_asked_for(name, call.broker.config.num_partitions)
    except RequestError as exc:
        if exc.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            codes = [exc.code]
        raise
    finally:
        note_change(call.broker.security.audit, call, KAFKA, "Metadata", [name], codes)


def _found(call: Call, topic: TopicMetadata) -> MetadataResponseTopic:
    nodes = [call.door.node_id]
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(number, epoch, nodes) for number, epoch in enumerate(topic.leader_epochs)],
    )


async def _found_in_turns(call: Call, topic: TopicMetadata) -> MetadataResponseTopic:
    nodes, partitions = [call.door.node_id], list[MetadataResponsePartition]()
    for first in range(0, len(topic.leader_epochs), PARTITIONS_AT_ONCE):
        some = topic.leader_epochs[first : first + PARTITIONS_AT_ONCE]
        partitions += [_partition(number, epoch, nodes) for number, epoch in enumerate(some, first)]
        await call.broker.disk.turns.checkpoint(STEPS_PER_PARTITION * len(some))
    return MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal, partitions=partitions)


def _partition(number: int, epoch: int | RequestError, nodes: list[int]) -> MetadataResponsePartition:
    """One that is offline has no leader, so that clients ask again until it is back."""
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
    """One of the server's own is said to be that, also while it is not there."""
    its_own = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name is not None and is_internal(name)
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=its_own, partitions=[])
