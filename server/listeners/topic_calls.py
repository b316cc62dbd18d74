"""The native calls on topics: values in, body out. Each topic or partition of a request succeeds or fails alone."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from ...protocol.errors import RequestError
from ...protocol.native import messages
from ...protocol.types import TopicPartition
from ..broker import Broker


def metadata(broker: Broker, message: messages.MetadataRequest) -> Any:
    names = broker.topics() if message.topics is None else message.topics
    return messages.MetadataResponse(tuple(_describe_topic(broker, name) for name in names)).to_body()


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


def describe_configs(broker: Broker, message: messages.DescribeConfigsRequest) -> Any:
    topics = []
    for name in message.topics:
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
    for topic in message.topics:
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
    deleted = [messages.DeletedTopic(name, await error_of(broker.delete_topic(name))) for name in message.topics]
    return messages.DeleteTopicsResponse(tuple(deleted)).to_body()


async def create_partitions(broker: Broker, message: messages.CreatePartitionsRequest) -> Any:
    changed = [
        messages.ChangedTopic(topic.name, await error_of(broker.create_partitions(topic.name, topic.total)))
        for topic in message.topics
    ]
    return messages.CreatePartitionsResponse(tuple(changed)).to_body()


async def alter_configs(broker: Broker, message: messages.AlterConfigsRequest) -> Any:
    changed = [
        messages.ChangedTopic(topic.name, await error_of(broker.alter_configs(topic.name, topic.set, topic.delete)))
        for topic in message.topics
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
