"""The native calls of producers that are recognised, of groups, and on client quotas: values in, values out. Groups of all
kinds are described by one kind of answer.
"""

from __future__ import annotations

import contextlib
from typing import Final

from ....protocol.coordinator.classic_group_records import decode_assignment
from ....protocol.errors import ErrorCode, InvalidRequestError, RemoteProtocolError, RequestError
from ....protocol.native import messages
from ....protocol.types import NO_OFFSET
from ...broker import (
    Broker,
    GroupDescription,
    GroupState,
    QuotaEntity,
    SharePartitionView,
    StreamsGroupDescription,
    check_quota,
    checked_entity,
)
from ...loop.procedures import in_turns
from .log_calls import error_of


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


CONSUMER: Final = "consumer"
"""Protocol type of the groups whose assignments can be read."""
CLASSIC: Final = "classic"
STICKY: Final = "sticky"
"""The only assignor of Streams groups."""


async def describe_groups(broker: Broker, message: messages.DescribeGroupsRequest) -> messages.DescribeGroupsResponse:
    groups = [await _described(broker, group) async for group in in_turns(message.groups)]
    return messages.DescribeGroupsResponse(tuple(groups))


async def _described(broker: Broker, group: str) -> messages.DescribedGroup:
    """With what a share group has begun, unless the topic went while others had their turn."""
    shared = []
    async for key in in_turns(broker.share_views.keys(group) if group in broker.groups.share else ()):
        with contextlib.suppress(RequestError):
            shared.append(_shared(broker.share_views.view(key)))
    try:
        told = group_of(broker, group, tuple(shared))
        if told.state == GroupState.DEAD.value:
            raise RequestError(
                f"there is no group {group!r}. `triolog groups list` lists the groups", ErrorCode.GROUP_ID_NOT_FOUND
            )
    except RequestError as exc:
        return messages.DescribedGroup(group, exc.as_answer())
    return told


def group_of(broker: Broker, group: str, shared: tuple[messages.SharedPartition, ...] = ()) -> messages.DescribedGroup:
    """Return state and members of a group of any kind; one that nobody knows is Dead. Raises RequestError."""
    assigned = broker.groups.assigned_of(group)
    if assigned is None:
        return _classic_group(broker.groups.describe(group))
    told, members = assigned.describe(group), []
    for each in told.members:
        if isinstance(told, StreamsGroupDescription):
            places = sorted(place for place in told.read_by(each) if broker.topics.has_partition(place))
        else:
            places = broker.topics.named_partitions(each.assignment)
        read = tuple(messages.Partition(*place) for place in places)
        members.append(messages.GroupMember(each.member_id, each.instance_id, each.client_id, each.client_host, read))
    assignor = STICKY if isinstance(told, StreamsGroupDescription) else told.assignor
    state, kind = told.state.value, assigned.KIND
    return messages.DescribedGroup(group, None, state, kind, kind, assignor, tuple(members), shared)


def _shared(view: SharePartitionView) -> messages.SharedPartition:
    start_offset, end_offset, lag = (
        NO_OFFSET if value is None else value for value in (view.start_offset, view.end_offset, view.lag)
    )
    return messages.SharedPartition(
        *view.topic_partition,
        start_offset,
        end_offset,
        lag,
        view.acquired_count,
        tuple(messages.Deliveries(*each) for each in view.deliveries.items()),
    )


def _classic_group(told: GroupDescription) -> messages.DescribedGroup:
    return messages.DescribedGroup(
        told.group_id,
        None,
        told.state.value,
        CLASSIC,
        told.protocol_type,
        told.protocol,
        tuple(
            messages.GroupMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                _read(each.assignment) if told.protocol_type == CONSUMER else (),
            )
            for each in told.members
        ),
    )


def _read(assignment: bytes) -> tuple[messages.Partition, ...]:
    """Return the partitions that the leader has assigned to a member; empty if the assignment is not in the consumers' common
    format."""
    try:
        assigned = decode_assignment(assignment).assigned_partitions
    except RemoteProtocolError:
        return ()
    named = [messages.Partition(each.topic, partition) for each in assigned for partition in each.partitions]
    return tuple(sorted(named, key=lambda each: (each.topic, each.partition)))


async def describe_quotas(broker: Broker, message: messages.DescribeQuotasRequest) -> messages.DescribeQuotasResponse:
    found = [
        messages.Quota(
            tuple(messages.QuotaPart(*part) for part in entity), tuple(messages.QuotaValue(*each) for each in values.items())
        )
        async for entity, values in in_turns(list(broker.security.client_quotas().items()))
    ]
    return messages.DescribeQuotasResponse(tuple(found))


async def alter_quotas(broker: Broker, message: messages.AlterQuotasRequest) -> messages.AlterQuotasResponse:
    """All changes that are right are made together; in effect, and on the device, when this returns."""
    changes: dict[QuotaEntity, dict[str, float | None]] = {}
    answers: list[messages.AlteredQuota] = []
    async for quota in in_turns(message.changes):
        error = None
        try:
            entity = checked_entity((each.type, each.name) for each in quota.entity)
            if entity in changes:
                raise InvalidRequestError("an entity is given more than once")
            changes[entity] = _checked(entity, quota)
        except RequestError as exc:
            error = exc.as_answer()
        answers.append(messages.AlteredQuota(quota.entity, error))
    if changes:
        await broker.security.alter_client_quotas(changes)
    return messages.AlterQuotasResponse(tuple(answers))


def _checked(entity: QuotaEntity, quota: messages.Quota) -> dict[str, float | None]:
    values = {each.key: each.value for each in quota.values}
    if len(values) < len(quota.values):
        raise InvalidRequestError("a key is given more than once")
    for key, value in values.items():
        if value is not None:
            check_quota(entity, key, value)
    return values
