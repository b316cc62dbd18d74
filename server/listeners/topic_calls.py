"""The native calls on topics: values in, body out. Each topic or partition of a request succeeds or fails alone."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from ...protocol.errors import RequestError
from ...protocol.native import messages
from ...protocol.types import TopicPartition
from ..broker import Broker
from .in_turns import in_turns

TOPICS_PER_TURN: Final = 4
"""Whose whole configuration is told."""


async def metadata(broker: Broker, message: messages.MetadataRequest) -> Any:
    if message.topics is None:  # in one turn: one that was deleted meanwhile would be an error
        topics = [_describe_topic(broker, name) for name in broker.topics()]
    else:
        topics = [_describe_topic(broker, name) async for name in in_turns(message.topics)]
    return messages.MetadataResponse(tuple(topics)).to_body()


def _describe_topic(broker: Broker, name: str) -> messages.TopicMetadata:
    try:
        topic = broker.describe_topic(name)
    except RequestError as exc:
        return messages.TopicMetadata(name, exc.as_answer())
    partitions = tuple(
        messages.PartitionMetadata(
            partition=each.partition,
            error=each.error,
            log_start_offset=each.log_start_offset,
            high_watermark=each.high_watermark,
            size_bytes=max(0, each.size_bytes),
            segments=each.segments,
            waiting=None if each.waiting is None else each.waiting.message,
        )
        for each in topic.partitions
    )
    return messages.TopicMetadata(name, None, topic.topic_id, topic.configs, partitions)


async def describe_configs(broker: Broker, message: messages.DescribeConfigsRequest) -> Any:
    topics = []
    async for name in in_turns(message.topics, TOPICS_PER_TURN):
        try:
            config = broker.describe_config(name)
        except RequestError as exc:
            topics.append(messages.TopicConfig(name, exc.as_answer()))
        else:
            entries = {key: messages.ConfigEntry(value, source) for key, (value, source) in config.items()}
            topics.append(messages.TopicConfig(name, None, entries))
    return messages.DescribeConfigsResponse(tuple(topics)).to_body()


async def create_topics(broker: Broker, message: messages.CreateTopicsRequest) -> Any:
    created = []
    async for topic in in_turns(message.topics):
        try:
            topic_id = await broker.create_topic(
                topic.name, topic.partitions, topic.config, validate_only=message.validate_only
            )
        except RequestError as exc:
            created.append(messages.CreatedTopic(topic.name, exc.as_answer()))
        else:
            created.append(messages.CreatedTopic(topic.name, None, topic_id or None))
    return messages.CreateTopicsResponse(tuple(created)).to_body()


async def delete_topics(broker: Broker, message: messages.DeleteTopicsRequest) -> Any:
    deleted = [
        messages.DeletedTopic(name, await error_of(broker.delete_topic(name))) async for name in in_turns(message.topics)
    ]
    return messages.DeleteTopicsResponse(tuple(deleted)).to_body()


async def create_partitions(broker: Broker, message: messages.CreatePartitionsRequest) -> Any:
    changed = [
        messages.ChangedTopic(topic.name, await error_of(broker.create_partitions(topic.name, topic.total)))
        async for topic in in_turns(message.topics)
    ]
    return messages.CreatePartitionsResponse(tuple(changed)).to_body()


async def alter_configs(broker: Broker, message: messages.AlterConfigsRequest) -> Any:
    changed = [
        messages.ChangedTopic(topic.name, await error_of(broker.alter_configs(topic.name, topic.set, topic.delete)))
        async for topic in in_turns(message.topics)
    ]
    return messages.AlterConfigsResponse(tuple(changed)).to_body()


async def delete_records(broker: Broker, message: messages.DeleteRecordsRequest) -> Any:
    wanted = [(TopicPartition(each.topic, each.partition), each.before_offset) for each in message.partitions]
    trimmed = [
        messages.DeleteRecordsPartitionResponse(*topic_partition, answer)
        if isinstance(answer, RequestError)
        else messages.DeleteRecordsPartitionResponse(*topic_partition, None, answer)
        for (topic_partition, _), answer in zip(wanted, await broker.delete_records_of(wanted), strict=True)
    ]
    return messages.DeleteRecordsResponse(tuple(trimmed)).to_body()


async def error_of(change: Awaitable[None]) -> RequestError | None:
    """What went wrong, as an answer's value; None when nothing did."""
    try:
        await change
    except RequestError as exc:
        return exc.as_answer()
    return None
