"""The native calls on topics: values in, values out. Each topic or partition of a request succeeds or fails alone."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Final

from ....protocol.errors import RequestError
from ....protocol.native import messages
from ...broker import Broker, PartitionDescription
from ...loop.procedures import PAUSE, Procedure, in_turns, mapped

TOPICS_PER_TURN: Final = 4
"""Whose whole configuration is described before other tasks run."""
PARTITIONS_PER_TURN: Final = 64
"""Of an answer, that are described before other tasks run."""
PARTITIONS_PER_TOPIC: Final = 16
"""A topic costs as much as so many of them."""


def metadata(broker: Broker, message: messages.MetadataRequest) -> Procedure[messages.MetadataResponse]:
    """Of all topics those that are there in the end."""
    described, left = [], PARTITIONS_PER_TURN
    for name in broker.topics.names() if message.topics is None else message.topics:
        if left <= 0:
            left = PARTITIONS_PER_TURN
            yield PAUSE
        left -= PARTITIONS_PER_TOPIC
        try:
            count = broker.topics.partition_count(name)
            left -= count
            is_small = count <= PARTITIONS_PER_TURN
            topic = broker.topics.describe(name) if is_small else (yield partial(broker.topics.describe_in_turns, name))
        except RequestError as exc:
            if message.topics is not None:
                described.append(messages.TopicMetadata(name, exc.as_answer()))
        else:
            partitions = tuple((yield from mapped(_partition, topic.partitions, PARTITIONS_PER_TURN)))
            described.append(messages.TopicMetadata(topic.name, None, topic.topic_id, topic.configs, partitions))
    return messages.MetadataResponse(tuple(described))


def _partition(each: PartitionDescription) -> messages.PartitionMetadata:
    return messages.PartitionMetadata(
        partition=each.partition,
        error=each.error,
        log_start_offset=each.log_start_offset,
        high_watermark=each.high_watermark,
        size_bytes=max(0, each.size_bytes),
        segments=each.segments,
        waiting=None if each.waiting is None else each.waiting.message,
    )


async def describe_configs(broker: Broker, message: messages.DescribeConfigsRequest) -> messages.DescribeConfigsResponse:
    topics = []
    async for name in in_turns(message.topics, TOPICS_PER_TURN):
        try:
            config = broker.topics.describe_config(name)
        except RequestError as exc:
            topics.append(messages.TopicConfig(name, exc.as_answer()))
        else:
            entries = {key: messages.ConfigEntry(value, source) for key, (value, source) in config.items()}
            topics.append(messages.TopicConfig(name, None, entries))
    return messages.DescribeConfigsResponse(tuple(topics))


async def create_topics(broker: Broker, message: messages.CreateTopicsRequest) -> messages.CreateTopicsResponse:
    created = []
    async for topic in in_turns(message.topics):
        try:
            topic_id = await broker.topics.create(
                topic.name, topic.partitions, topic.config, validate_only=message.validate_only
            )
        except RequestError as exc:
            created.append(messages.CreatedTopic(topic.name, exc.as_answer()))
        else:
            created.append(messages.CreatedTopic(topic.name, None, topic_id or None))
    return messages.CreateTopicsResponse(tuple(created))


async def delete_topics(broker: Broker, message: messages.DeleteTopicsRequest) -> messages.DeleteTopicsResponse:
    deleted = [
        messages.TopicAnswer(name, await error_of(broker.topics.delete(name))) async for name in in_turns(message.topics)
    ]
    return messages.DeleteTopicsResponse(tuple(deleted))


async def create_partitions(broker: Broker, message: messages.CreatePartitionsRequest) -> messages.CreatePartitionsResponse:
    changed = [
        messages.TopicAnswer(topic.name, await error_of(broker.topics.create_partitions(topic.name, topic.total)))
        async for topic in in_turns(message.topics)
    ]
    return messages.CreatePartitionsResponse(tuple(changed))


async def alter_configs(broker: Broker, message: messages.AlterConfigsRequest) -> messages.AlterConfigsResponse:
    changed = [
        messages.TopicAnswer(topic.name, await error_of(broker.topics.alter_configs(topic.name, topic.set, topic.delete)))
        async for topic in in_turns(message.topics)
    ]
    return messages.AlterConfigsResponse(tuple(changed))


async def delete_records(broker: Broker, message: messages.DeleteRecordsRequest) -> messages.DeleteRecordsResponse:
    wanted = [(each.topic_partition, each.before_offset) for each in message.partitions]
    trimmed = [
        messages.DeleteRecordsPartitionResponse(*topic_partition, answer)
        if isinstance(answer, RequestError)
        else messages.DeleteRecordsPartitionResponse(*topic_partition, None, answer)
        async for (topic_partition, _), answer in in_turns(
            zip(wanted, await broker.logs.delete_records_of(wanted), strict=True)
        )
    ]
    return messages.DeleteRecordsResponse(tuple(trimmed))


async def error_of(change: Awaitable[None]) -> RequestError | None:
    """Await the change and return its error as the value of a response; None if it succeeded."""
    try:
        await change
    except RequestError as exc:
        return exc.as_answer()
    return None
