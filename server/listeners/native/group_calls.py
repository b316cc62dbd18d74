"""The native calls of producers that are recognised and of groups: values in, values out."""

from __future__ import annotations

from ....protocol.errors import RequestError
from ....protocol.native import messages
from ...broker import Broker
from ...loop.procedures import in_turns
from .topic_calls import error_of


async def init_producer(broker: Broker, message: messages.InitProducerRequest) -> messages.InitProducerResponse:
    producer_id, epoch = await broker.producers.init(message.transactional_id, message.timeout_ms)
    return messages.InitProducerResponse(producer_id, epoch)


async def end_transaction(broker: Broker, message: messages.EndTransactionRequest) -> messages.EndTransactionResponse:
    producer = message.producer
    await broker.transactions.end(
        producer.transactional_id, producer.producer_id, producer.producer_epoch, commit=message.commit
    )
    return messages.EndTransactionResponse()


async def abort_transaction(broker: Broker, message: messages.AbortTransactionRequest) -> messages.AbortTransactionResponse:
    await broker.transactions.abort(message.transactional_id)
    return messages.AbortTransactionResponse()


async def abort_hanging_transactions(
    broker: Broker, message: messages.AbortHangingTransactionsRequest
) -> messages.AbortHangingTransactionsResponse:
    answers = []
    async for each in in_turns(message.partitions):
        try:
            start = await broker.producers.abort_hanging(each.topic_partition, each.producer_id)
        except RequestError as exc:
            answers.append(messages.AbortedHangingTransaction(*each.topic_partition, exc.as_answer()))
        else:
            answers.append(messages.AbortedHangingTransaction(*each.topic_partition, None, start))
    return messages.AbortHangingTransactionsResponse(tuple(answers))


async def commit_offsets(broker: Broker, message: messages.CommitOffsetsRequest) -> messages.CommitOffsetsResponse:
    producer = message.transaction
    offsets = [(each.topic_partition, each.offset, each.metadata) async for each in in_turns(message.partitions)]
    errors = await broker.offsets.commit(
        message.group,
        offsets,
        transaction=None if producer is None else (producer.transactional_id, producer.producer_id, producer.producer_epoch),
    )
    return messages.CommitOffsetsResponse(
        tuple(
            [
                messages.PartitionAnswer(each.topic, each.partition, error)
                async for each, error in in_turns(zip(message.partitions, errors, strict=True))
            ]
        )
    )


async def fetch_offsets(broker: Broker, message: messages.FetchOffsetsRequest) -> messages.FetchOffsetsResponse:
    asked = None
    if message.partitions is not None:
        asked = [each.topic_partition for each in message.partitions]
    found = await broker.offsets.fetch(message.group, asked, require_stable=message.require_stable)
    return messages.FetchOffsetsResponse(
        tuple(
            [
                messages.FetchOffsetsPartitionResponse(partition.topic, partition.partition, None, offset, metadata)
                async for partition, offset, metadata in in_turns(found)
            ]
        )
    )


async def alter_share_group_offsets(
    broker: Broker, message: messages.AlterShareGroupOffsetsRequest
) -> messages.AlterShareGroupOffsetsResponse:
    errors = await broker.groups.share.alter_offsets(
        message.group, [(each.topic_partition, each.start_offset) for each in message.partitions]
    )
    return messages.AlterShareGroupOffsetsResponse(
        tuple(
            messages.PartitionAnswer(each.topic, each.partition, error)
            for each, error in zip(message.partitions, errors, strict=True)
        )
    )


async def list_groups(broker: Broker, message: messages.ListGroupsRequest) -> messages.ListGroupsResponse:
    listings = await broker.in_steps(broker.groups.listing_steps())
    return messages.ListGroupsResponse(tuple(each.group_id for each in listings))


async def delete_groups(broker: Broker, message: messages.DeleteGroupsRequest) -> messages.DeleteGroupsResponse:
    deleted = [
        messages.DeletedGroup(group, await error_of(broker.groups.delete(group))) async for group in in_turns(message.groups)
    ]
    return messages.DeleteGroupsResponse(tuple(deleted))
