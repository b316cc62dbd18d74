"""DeleteTopics, CreatePartitions, DeleteRecords. Source: ControllerApis, KIP-516 for deletions by id, KIP-107."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ....protocol.errors import InvalidRequestError, RequestError
from ....protocol.kafka.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsDeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ....protocol.types import TopicPartition
from ...loop.procedures import in_turns
from .door import NO_TOPIC_ID, Call, error_code, error_message
from .replicas import check_addition

FIRST_WITH_TOPIC_IDS: Final = 6
FIRST_STRICT_DELETION: Final = 5
FIRST_STRICT_ADDITION: Final = 3
"""From here on a client that is above its quota of changes is refused."""
NO_LOW_WATERMARK: Final = -1

Asked = tuple[str | None, bytes]
"""(name, id) of a topic; one of them says nothing."""


# ---- DeleteTopics ----------------------------------------------------------------------------------------------------------


async def delete_topics(call: Call, body: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics, by name or by id. One that is there twice is answered once, with an error, and stays."""
    by_name: list[Asked] = [(name, NO_TOPIC_ID) for name in body.topic_names]
    by_either: list[Asked] = [(state.name, state.topic_id) for state in body.topics]
    asked = by_either if call.version >= FIRST_WITH_TOPIC_IDS else by_name
    repeated = _repeated(call, asked)
    return DeleteTopicsResponse(
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


async def _delete(call: Call, asked: Asked, repeated: set[Asked]) -> DeleteTopicsDeletableTopicResult:
    name, topic_id = asked
    error: RequestError | None = None
    try:
        if (name is None) == (topic_id == NO_TOPIC_ID):
            raise InvalidRequestError("a topic to delete has a name or an id, not both and not neither")
        if asked in repeated:
            raise InvalidRequestError("the topic is there more than once")
        by_name = call.topic_name(name or "", topic_id, by_id=name is None)
        topic_id = call.broker.topics.id_of(by_name)
        name = by_name
        call.charge_partitions(call.broker.topics.partition_count(name), FIRST_STRICT_DELETION)
        await call.broker.topics.delete(name, topic_id=topic_id)
    except RequestError as exc:
        error = exc.as_answer()
    return DeleteTopicsDeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error_code(error), error_message=error_message(error)
    )


# ---- CreatePartitions ------------------------------------------------------------------------------------------------------


async def create_partitions(call: Call, body: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Let topics have more partitions than they have, or look whether they could."""
    counts = Counter(topic.name for topic in body.topics)
    results = []
    async for topic in in_turns({topic.name: topic for topic in body.topics}.values()):
        error: RequestError | None = None
        try:
            if counts[topic.name] > 1:
                raise InvalidRequestError(f"topic {topic.name!r} is there {counts[topic.name]} times")
            await _grow(call, topic, validate_only=body.validate_only)
        except RequestError as exc:
            error = exc.as_answer()
        results.append(
            CreatePartitionsTopicResult(name=topic.name, error_code=error_code(error), error_message=error_message(error))
        )
    return CreatePartitionsResponse(results=results)


async def _grow(call: Call, topic: CreatePartitionsTopic, *, validate_only: bool) -> None:
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


async def delete_records(call: Call, body: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete the records below an offset; -1 is the high watermark. Each partition succeeds or fails alone."""
    wanted = [
        (TopicPartition(topic.name, each.partition_index), each.offset) for topic in body.topics for each in topic.partitions
    ]
    answers = iter(await call.broker.logs.delete_records_of(wanted))
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_trimmed(each.partition_index, next(answers)) for each in topic.partitions]
            )
            for topic in body.topics
        ]
    )


def _trimmed(number: int, answer: int | RequestError) -> DeleteRecordsPartitionResult:
    if isinstance(answer, RequestError):
        return DeleteRecordsPartitionResult(
            partition_index=number, low_watermark=NO_LOW_WATERMARK, error_code=error_code(answer)
        )
    return DeleteRecordsPartitionResult(partition_index=number, low_watermark=answer)
