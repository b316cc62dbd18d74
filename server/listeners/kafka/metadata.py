"""Metadata: brokers, topics, and who leads which partition.

A topic that may be made by being asked for is made at once: the answer has it, where Kafka lets the client ask again. One that
was deleted a moment ago is made too, but said to be unknown once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

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
from ...loop.procedures import PAUSE, Procedure, mapped
from ..access.audited import note_change
from .access.audited import KAFKA
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
