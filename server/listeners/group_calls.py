"""The native calls of producers that are recognised and of groups: values in, body out."""

from __future__ import annotations

from typing import Any

from ...protocol.native import messages
from ...protocol.types import TopicPartition
from ..broker import Broker
from .in_turns import in_turns
from .topic_calls import error_of


async def init_producer(broker: Broker, message: messages.InitProducerRequest) -> Any:
    producer_id, epoch = await broker.init_producer(message.transactional_id, message.timeout_ms)
    return messages.InitProducerResponse(producer_id, epoch).to_body()


async def end_transaction(broker: Broker, message: messages.EndTransactionRequest) -> Any:
    producer = message.producer
    await broker.end_transaction(
        producer.transactional_id, producer.producer_id, producer.producer_epoch, commit=message.commit
    )
    return messages.EndTransactionResponse().to_body()


async def commit_offsets(broker: Broker, message: messages.CommitOffsetsRequest) -> Any:
    producer = message.transaction
    errors = await broker.commit_offsets(
        message.group,
        [(TopicPartition(each.topic, each.partition), each.offset, each.metadata) for each in message.partitions],
        transaction=None if producer is None else (producer.transactional_id, producer.producer_id, producer.producer_epoch),
    )
    return messages.CommitOffsetsResponse(
        tuple(
            messages.CommitOffsetsPartitionResponse(each.topic, each.partition, error)
            for each, error in zip(message.partitions, errors, strict=True)
        )
    ).to_body()


async def fetch_offsets(broker: Broker, message: messages.FetchOffsetsRequest) -> Any:
    asked = None
    if message.partitions is not None:
        asked = [TopicPartition(each.topic, each.partition) for each in message.partitions]
    found = await broker.fetch_offsets(message.group, asked, require_stable=message.require_stable)
    return messages.FetchOffsetsResponse(
        tuple(
            messages.FetchOffsetsPartitionResponse(partition.topic, partition.partition, None, offset, metadata)
            for partition, offset, metadata in found
        )
    ).to_body()


async def list_groups(broker: Broker, message: messages.ListGroupsRequest) -> Any:
    return messages.ListGroupsResponse(tuple(each.group_id for each in broker.list_groups())).to_body()


async def delete_groups(broker: Broker, message: messages.DeleteGroupsRequest) -> Any:
    deleted = [
        messages.DeletedGroup(group, await error_of(broker.delete_group(group))) async for group in in_turns(message.groups)
    ]
    return messages.DeleteGroupsResponse(tuple(deleted)).to_body()
