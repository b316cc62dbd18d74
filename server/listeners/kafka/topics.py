"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords. Source: ControllerApis, ReplicationControlManager, KIP-107,
KIP-516 for deletions by id, KIP-525 for the answered keys.

Each topic succeeds or fails alone. Where Kafka asks for more nodes than there are, a lenient server takes what it has. Numbers
of partitions and replicas, and manual assignments of them, are checked as Kafka's controller does.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ....protocol.errors import ErrorCode, InvalidConfigError, InvalidRequestError, RequestError
from ....protocol.kafka.messages import topics as messages
from ....protocol.limits import MAX_PARTITIONS_PER_REQUEST, MAX_PARTITIONS_PER_TOPIC
from ....protocol.types import TopicPartition
from ...loop.procedures import in_turns
from .config_entries import new_topic_entries, topic_entries
from .door import NO_TOPIC_ID, Call, error_code, reported

FIRST_WITH_TOPIC_IDS: Final = 6
FIRST_STRICT_DELETION: Final = 5
FIRST_STRICT_ADDITION: Final = 3
"""From here on a client that is above its quota of changes is refused."""
NO_LOW_WATERMARK: Final = -1

Asked = tuple[str | None, bytes]
"""(name, id) of a topic; one of them says nothing."""


# ---- DeleteTopics ----------------------------------------------------------------------------------------------------------


async def delete_topics(call: Call, body: messages.DeleteTopicsRequest) -> messages.DeleteTopicsResponse:
    """Delete topics, by name or by id. One that is there twice is answered once, with an error, and stays."""
    by_name: list[Asked] = [(name, NO_TOPIC_ID) for name in body.topic_names]
    by_either: list[Asked] = [(state.name, state.topic_id) for state in body.topics]
    asked = by_either if call.version >= FIRST_WITH_TOPIC_IDS else by_name
    repeated = _repeated(call, asked)
    return messages.DeleteTopicsResponse(
        responses=[await _delete(call, each, repeated) async for each in in_turns(dict.fromkeys(asked))]
    )


def _repeated(call: Call, asked: Sequence[Asked]) -> set[Asked]:
    """The topics that a request names more than once, be it by name and by id."""
    counts = Counter(_identity(call, each) for each in asked)
    return {each for each in asked if counts[_identity(call, each)] > 1}


def _identity(call: Call, asked: Asked) -> Asked:
    """A key that is equal for one topic however it is asked for, by name or by id."""
    name, topic_id = asked
    try:
        return (call.broker.topics.named(topic_id), NO_TOPIC_ID) if name is None else asked
    except RequestError:
        return asked


async def _delete(call: Call, asked: Asked, repeated: set[Asked]) -> messages.DeleteTopicsDeletableTopicResult:
    name, topic_id = asked
    error: RequestError | None = None
    try:
        if (name is None) == (topic_id == NO_TOPIC_ID):
            raise InvalidRequestError("a topic to delete needs either a name or an id")
        if asked in repeated:
            raise InvalidRequestError("the topic is given more than once")
        by_name = call.topic_name(name or "", topic_id, by_id=name is None)
        topic_id = call.broker.topics.id_of(by_name)
        name = by_name
        call.charge_partitions(call.broker.topics.partition_count(name), FIRST_STRICT_DELETION)
        await call.broker.topics.delete(name, topic_id=topic_id)
    except RequestError as exc:
        error = exc.as_answer()
    return reported(messages.DeleteTopicsDeletableTopicResult, error, name=name, topic_id=topic_id)


# ---- CreatePartitions ------------------------------------------------------------------------------------------------------


async def create_partitions(call: Call, body: messages.CreatePartitionsRequest) -> messages.CreatePartitionsResponse:
    """Let topics have more partitions than they have, or look whether they could."""
    counts = Counter(topic.name for topic in body.topics)
    results = []
    async for topic in in_turns({topic.name: topic for topic in body.topics}.values()):
        error: RequestError | None = None
        try:
            if counts[topic.name] > 1:
                raise InvalidRequestError(f"topic {topic.name!r} is given {counts[topic.name]} times")
            await _grow(call, topic, validate_only=body.validate_only)
        except RequestError as exc:
            error = exc.as_answer()
        results.append(reported(messages.CreatePartitionsTopicResult, error, name=topic.name))
    return messages.CreatePartitionsResponse(results=results)


async def _grow(call: Call, topic: messages.CreatePartitionsTopic, *, validate_only: bool) -> None:
    await call.broker.topics.create_partitions(topic.name, topic.count, validate_only=True)
    additional = topic.count - call.broker.topics.partition_count(topic.name)
    if topic.assignments is None:
        call.charge_partitions(additional, FIRST_STRICT_ADDITION)
    else:
        if len(topic.assignments) == additional:
            call.charge_partitions(additional, FIRST_STRICT_ADDITION)
        nodes = [node.node_id for node in call.door.nodes(call.session)]
        assigned = [each.broker_ids for each in topic.assignments]
        check_addition(assigned, additional, nodes, lenient=call.door.lenient)
    if not validate_only:
        await call.broker.topics.create_partitions(topic.name, topic.count)


# ---- DeleteRecords ---------------------------------------------------------------------------------------------------------


async def delete_records(call: Call, body: messages.DeleteRecordsRequest) -> messages.DeleteRecordsResponse:
    """Delete the records below an offset; -1 is the high watermark. Each partition succeeds or fails alone."""
    wanted = [
        (TopicPartition(topic.name, each.partition_index), each.offset) for topic in body.topics for each in topic.partitions
    ]
    answers = iter(await call.broker.logs.delete_records_of(wanted))
    return messages.DeleteRecordsResponse(
        topics=[
            messages.DeleteRecordsTopicResult(
                name=topic.name, partitions=[_trimmed(each.partition_index, next(answers)) for each in topic.partitions]
            )
            for topic in body.topics
        ]
    )


def _trimmed(number: int, answer: int | RequestError) -> messages.DeleteRecordsPartitionResult:
    if isinstance(answer, RequestError):
        return messages.DeleteRecordsPartitionResult(
            partition_index=number, low_watermark=NO_LOW_WATERMARK, error_code=error_code(answer)
        )
    return messages.DeleteRecordsPartitionResult(partition_index=number, low_watermark=answer)


TOPICS_PER_TURN: Final = 4
"""Their whole configuration is checked, and told."""
LOGGER: Final = logging.getLogger(__name__)

FIRST_STRICT: Final = 6
"""From here on a client that is above its quota of changes is refused."""
REPLICAS: Final = 1
"""Of every partition."""


async def create_topics(call: Call, body: messages.CreateTopicsRequest) -> messages.CreateTopicsResponse:
    """Make topics, or look whether they could be made; a name that is there twice is answered once, with an error."""
    counts = Counter(topic.name for topic in body.topics)
    topics = {topic.name: topic for topic in body.topics}.values()
    if (total := sum(_asked_partitions(call, topic) for topic in topics)) > MAX_PARTITIONS_PER_REQUEST:
        error = RequestError(
            f"the request creates {total} partitions, a request may create {MAX_PARTITIONS_PER_REQUEST}. Send several",
            ErrorCode.POLICY_VIOLATION,
        )
        refused = messages.CreateTopicsCreatableTopicResult
        return messages.CreateTopicsResponse(topics=[reported(refused, error, name=topic.name) for topic in topics])
    results = []
    async for topic in in_turns(topics, TOPICS_PER_TURN):
        try:
            if counts[topic.name] > 1:
                raise InvalidRequestError(f"topic {topic.name!r} is given {counts[topic.name]} times")
            results.append(await create_topic(call, topic, validate_only=body.validate_only))
        except RequestError as exc:
            results.append(reported(messages.CreateTopicsCreatableTopicResult, exc, name=topic.name))
    return messages.CreateTopicsResponse(topics=results)


def _asked_partitions(call: Call, topic: messages.CreateTopicsCreatableTopic) -> int:
    """The number of partitions that a topic is to have, for the limit of a request; 0 for an impossible number."""
    count = topic.num_partitions
    if count == BY_DEFAULT:
        count = len(topic.assignments) or call.broker.config.num_partitions
    return count if 0 < count <= MAX_PARTITIONS_PER_TOPIC else 0


async def create_topic(
    call: Call, topic: messages.CreateTopicsCreatableTopic, *, validate_only: bool = False
) -> messages.CreateTopicsCreatableTopicResult:
    """Make one topic. Raises RequestError."""
    given = {config.name: config.value for config in topic.configs}  # of one that is there twice the last value counts
    configs = {name: value for name, value in given.items() if value is not None}
    lenient = call.door.lenient
    await call.broker.topics.create(topic.name, 1, configs, lenient=lenient, validate_only=True)
    if without := sorted(given.keys() - configs.keys()):
        raise InvalidConfigError(f"topic {topic.name!r}: no value given for {', '.join(without)}. Leave the key out")
    partitions = _partitions(call, topic)
    if call.session.quotas.is_active:
        await call.broker.topics.create(topic.name, partitions, configs, lenient=lenient, validate_only=True)
        call.charge_partitions(partitions, FIRST_STRICT)
    await call.broker.topics.create(topic.name, partitions, configs, lenient=lenient, validate_only=validate_only)
    topic_id = NO_TOPIC_ID if validate_only else call.broker.topics.id_of(topic.name)
    return _made(call, topic.name, topic_id, partitions, configs, validate_only=validate_only)


def _partitions(call: Call, topic: messages.CreateTopicsCreatableTopic) -> int:
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
        LOGGER.info("topic %s: client requested %d replicas, the topic has %d", topic.name, replicas, REPLICAS)
    return call.broker.config.num_partitions if partitions == BY_DEFAULT else partitions


def _made(
    call: Call, name: str, topic_id: bytes, partitions: int, configs: Mapping[str, str], *, validate_only: bool
) -> messages.CreateTopicsCreatableTopicResult:
    entries = new_topic_entries(call.broker, configs) if validate_only else topic_entries(call.broker, name)
    return messages.CreateTopicsCreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=partitions,
        replication_factor=REPLICAS,
        configs=[
            messages.CreateTopicsCreatableTopicConfigs(
                name=entry.name, value=entry.value, read_only=False, config_source=entry.source, is_sensitive=False
            )
            for entry in entries
        ],
    )


BY_DEFAULT: Final = -1
"""As a number of partitions or replicas: the server's choice."""


def check_counts(partitions: int, replication_factor: int) -> None:
    """Raises RequestError for impossible numbers of partitions or replicas."""
    if replication_factor < BY_DEFAULT or replication_factor == 0:
        raise RequestError(
            f"replication factor {replication_factor}: use a number above 0, or -1 for the default",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    if partitions < BY_DEFAULT or partitions == 0:
        raise RequestError(
            f"{partitions} partitions: use a number above 0, or -1 for the default", ErrorCode.INVALID_PARTITIONS
        )


def check_reach(replication_factor: int, nodes: Collection[int]) -> None:
    """Raises RequestError when there are fewer nodes than replicas."""
    if replication_factor > len(nodes):
        raise RequestError(
            f"replication factor {replication_factor} is impossible: {len(nodes)} broker(s) are registered. Use "
            f"-1 or {len(nodes)}, or run the server with lenient=true",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )


def partitions_of(assignments: Sequence[tuple[int, Sequence[int]]], nodes: Collection[int], *, lenient: bool) -> int:
    """Return the number of partitions of a topic with explicit replicas: (partition, its nodes) for each. Raises
    RequestError."""
    numbers = [number for number, _ in assignments]
    for number, replicas in assignments:
        if numbers.count(number) > 1:
            raise _wrong(f"partition {number} is assigned more than once")
        check_assignment(replicas, nodes, lenient=lenient)
        if len(replicas) != len(assignments[0][1]):
            raise _wrong(f"partition {number} has {len(replicas)} replicas, others have {len(assignments[0][1])}")
    if sorted(numbers) != list(range(len(numbers))):
        raise _wrong(f"partitions {numbers} are assigned, but numbers must start at 0 without a gap")
    return len(numbers)


def check_addition(assignments: Sequence[Sequence[int]], additional: int, nodes: Collection[int], *, lenient: bool) -> None:
    """Raises RequestError unless these are the nodes of as many partitions as are added."""
    if len(assignments) != additional:
        raise _wrong(f"the request adds {additional} partitions and assigns {len(assignments)}")
    for replicas in assignments:
        check_assignment(replicas, nodes, lenient=lenient)


def check_assignment(replicas: Sequence[int], nodes: Collection[int], *, lenient: bool = False) -> None:
    """Raises RequestError unless a partition can be on these nodes; `lenient`: they need not be there."""
    if not replicas:
        raise _wrong("an assignment names no replica")
    for node in replicas:
        if replicas.count(node) > 1:
            raise _wrong(f"an assignment names broker {node} more than once")
        if node not in nodes and not lenient:
            raise _wrong(f"an assignment names broker {node}, registered: {', '.join(map(str, nodes))}")


def check_exclusive(partitions: int, replication_factor: int) -> None:
    """Raises RequestError when numbers are given beside an assignment."""
    for name, count in (("replication factor", replication_factor), ("number of partitions", partitions)):
        if count != BY_DEFAULT:
            raise InvalidRequestError(f"the partitions are assigned by hand, so the {name} must be -1, not {count}")


def _wrong(message: str) -> RequestError:
    return RequestError(message, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
