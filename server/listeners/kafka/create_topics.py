"""CreateTopics. Source: ControllerApis.createTopics, ReplicationControlManager.createTopic, KIP-525 for the answered keys.

Each topic succeeds or fails alone. Where Kafka asks for more nodes than there are, a lenient server takes what it has.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from ....protocol.errors import ErrorCode, InvalidConfigError, InvalidRequestError, RequestError
from ....protocol.kafka.messages.topics import (
    CreateTopicsCreatableTopic,
    CreateTopicsCreatableTopicConfigs,
    CreateTopicsCreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ....protocol.limits import MAX_PARTITIONS_PER_REQUEST, MAX_PARTITIONS_PER_TOPIC
from ...loop.procedures import in_turns
from .config_entries import new_topic_entries, topic_entries
from .door import NO_TOPIC_ID, Call
from .replicas import BY_DEFAULT, check_counts, check_exclusive, check_reach, partitions_of

TOPICS_PER_TURN: Final = 4
"""Their whole configuration is checked, and told."""
LOGGER: Final = logging.getLogger(__name__)

FIRST_STRICT: Final = 6
"""From here on a client that is above its quota of changes is refused."""
REPLICAS: Final = 1
"""Of every partition."""


async def create_topics(call: Call, body: CreateTopicsRequest) -> CreateTopicsResponse:
    """Make topics, or look whether they could be made; a name that is there twice is answered once, with an error."""
    counts = Counter(topic.name for topic in body.topics)
    topics = {topic.name: topic for topic in body.topics}.values()
    if (total := sum(_asked_partitions(call, topic) for topic in topics)) > MAX_PARTITIONS_PER_REQUEST:
        error = RequestError(
            f"the request asks for {total} partitions in all, a request may make {MAX_PARTITIONS_PER_REQUEST}; send several",
            ErrorCode.POLICY_VIOLATION,
        )
        return CreateTopicsResponse(topics=[_refused(topic.name, error) for topic in topics])
    results = []
    async for topic in in_turns(topics, TOPICS_PER_TURN):
        try:
            if counts[topic.name] > 1:
                raise InvalidRequestError(f"topic {topic.name!r} is there {counts[topic.name]} times")
            results.append(await create_topic(call, topic, validate_only=body.validate_only))
        except RequestError as exc:
            results.append(_refused(topic.name, exc))
    return CreateTopicsResponse(topics=results)


def _asked_partitions(call: Call, topic: CreateTopicsCreatableTopic) -> int:
    """The number of partitions that a topic is to have, for the limit of a request; 0 for an impossible number."""
    count = topic.num_partitions
    if count == BY_DEFAULT:
        count = len(topic.assignments) or call.broker.config.num_partitions
    return count if 0 < count <= MAX_PARTITIONS_PER_TOPIC else 0


async def create_topic(
    call: Call, topic: CreateTopicsCreatableTopic, *, validate_only: bool = False
) -> CreateTopicsCreatableTopicResult:
    """Make one topic. Raises RequestError."""
    given = {config.name: config.value for config in topic.configs}  # of one that is there twice the last value counts
    configs = {name: value for name, value in given.items() if value is not None}
    lenient = call.door.lenient
    await call.broker.topics.create(topic.name, 1, configs, lenient=lenient, validate_only=True)
    if without := sorted(given.keys() - configs.keys()):
        raise InvalidConfigError(f"topic {topic.name!r}: no value is given for {', '.join(without)}; leave the key out")
    partitions = _partitions(call, topic)
    if call.session.quotas.is_active:
        await call.broker.topics.create(topic.name, partitions, configs, lenient=lenient, validate_only=True)
        call.charge_partitions(partitions, FIRST_STRICT)
    await call.broker.topics.create(topic.name, partitions, configs, lenient=lenient, validate_only=validate_only)
    topic_id = NO_TOPIC_ID if validate_only else call.broker.topics.id_of(topic.name)
    return _made(call, topic.name, topic_id, partitions, configs, validate_only=validate_only)


def _partitions(call: Call, topic: CreateTopicsCreatableTopic) -> int:
    """Return the number of partitions of the new topic. Raises RequestError."""
    nodes = [node.node_id for node in call.door.nodes(call.session)]
    lenient = call.door.lenient
    if topic.assignments:
        check_exclusive(topic.num_partitions, topic.replication_factor)
        assigned = [(each.partition_index, each.broker_ids) for each in topic.assignments]
        partitions = partitions_of(assigned, nodes, lenient=lenient)
        replicas = len(topic.assignments[0].broker_ids)
    else:
        check_counts(topic.num_partitions, topic.replication_factor)
        partitions, replicas = topic.num_partitions, topic.replication_factor
        if not lenient:
            check_reach(replicas, nodes)
    if replicas > len(nodes):
        LOGGER.info("topic %s: %d replicas were asked for, it has %d", topic.name, replicas, REPLICAS)
    return call.broker.config.num_partitions if partitions == BY_DEFAULT else partitions


def _made(
    call: Call, name: str, topic_id: bytes, partitions: int, configs: Mapping[str, str], *, validate_only: bool
) -> CreateTopicsCreatableTopicResult:
    entries = new_topic_entries(call.broker, configs) if validate_only else topic_entries(call.broker, name)
    return CreateTopicsCreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=partitions,
        replication_factor=REPLICAS,
        configs=[
            CreateTopicsCreatableTopicConfigs(
                name=entry.name, value=entry.value, read_only=False, config_source=entry.source, is_sensitive=False
            )
            for entry in entries
        ],
    )


def _refused(name: str, error: RequestError) -> CreateTopicsCreatableTopicResult:
    return CreateTopicsCreatableTopicResult(
        name=name, topic_id=NO_TOPIC_ID, error_code=error.code, error_message=error.message, configs=[]
    )
