"""ShareAcknowledge; what members of share groups say of records, there and in ShareFetch: checked, carried out. Source:
KIP-932, KIP-1222; Kafka's KafkaApis.validateAcknowledgementBatches for the order of the checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import trio

from ....protocol.errors import AuthorizationError, ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages.share_groups import (
    ShareAcknowledgementBatch,
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareLeaderIdAndEpoch,
)
from ....protocol.types import TopicPartition
from ...broker import FINAL_SHARE_EPOCH, Acknowledgement, AcknowledgeType, ShareKey
from .door import Call, error_code, error_message

MAX_MEMBER_ID_CHARS: Final = 36
FIRST_WITH_RENEWALS: Final = 2
PARTITIONS_AT_ONCE: Final = 64
"""Of a request, whose writes are under way together."""

Said = dict[ShareKey, Sequence[ShareAcknowledgementBatch]]
Outcome = dict[ShareKey, RequestError | None]


def member_of(body: Any) -> tuple[str, str]:
    """(group, member) of a request. Raises InvalidRequestError."""
    if body.group_id is None:
        raise InvalidRequestError("Invalid group id in the request.")
    if not body.member_id or len(body.member_id) > MAX_MEMBER_ID_CHARS:
        raise InvalidRequestError("Invalid member id in the request.")
    return body.group_id, body.member_id


def said_in(group: str, body: Any) -> Said:
    """Return the acknowledgement batches of a request, by partition."""
    return {
        ShareKey(group, topic.topic_id, partition.partition_index): partition.acknowledgement_batches
        for topic in body.topics
        for partition in topic.partitions
    }


async def acknowledge(call: Call, member: str, said: Said, *, renews: bool) -> Outcome:
    """Carry out what a member says; each partition succeeds or fails alone."""
    outcome: Outcome = {}
    allowed: dict[ShareKey, list[Acknowledgement]] = {}
    for key, batches in said.items():
        try:
            name = call.broker.topics.named(key.topic_id)
            allowed[key] = list(_checked(call, batches, renews=renews))
            call.check_authorized(AclOperation.READ, ResourceType.TOPIC, name)
            call.check_partition(TopicPartition(name, key.partition))
        except RequestError as exc:
            allowed.pop(key, None)
            outcome[key] = exc
    await _carry_out(call, member, allowed, outcome)
    return outcome


async def _carry_out(call: Call, member: str, said: dict[ShareKey, list[Acknowledgement]], outcome: Outcome) -> None:
    async def say(key: ShareKey, batches: list[Acknowledgement]) -> None:
        try:
            await call.broker.shares.acknowledge(key, member, batches)
        except RequestError as exc:
            outcome[key] = exc
        else:
            outcome[key] = None

    if len(said) == 1:
        await say(*next(iter(said.items())))
        return
    left = iter(said.items())
    while some := list(islice(left, PARTITIONS_AT_ONCE)):
        async with trio.open_nursery() as nursery:
            for key, batches in some:
                nursery.start_soon(say, key, batches)


def _checked(call: Call, batches: Iterable[ShareAcknowledgementBatch], *, renews: bool) -> Iterator[Acknowledgement]:
    """The acknowledgements of one partition, if each of them and their order can be right. Raises InvalidRequestError."""
    highest = AcknowledgeType.RENEW if call.version >= FIRST_WITH_RENEWALS else AcknowledgeType.REJECT
    before = -1
    for first, last, types in ((each.first_offset, each.last_offset, each.acknowledge_types) for each in batches):
        if first > last or first < before:
            raise InvalidRequestError(f"the offsets {first} to {last} are acknowledged after {before}")
        if not types or (len(types) > 1 and len(types) != last - first + 1):
            raise InvalidRequestError(f"the offsets {first} to {last} have {len(types)} types of acknowledgement")
        if min(types) < 0 or max(types) > highest:
            raise InvalidRequestError(f"types of acknowledgement are 0 to {highest}, not {min(types)} to {max(types)}")
        if AcknowledgeType.RENEW in types and not renews:
            raise InvalidRequestError("the request renews locks and says that it does not")
        yield Acknowledgement(first, last, types)
        before = last


def is_allowed(call: Call, key: ShareKey) -> bool:
    """Return whether the client may read the topic of a partition; True if the topic does not exist, which other checks
    report."""
    try:
        name = call.broker.topics.named(key.topic_id)
        call.check_authorized(AclOperation.READ, ResourceType.TOPIC, name)
    except AuthorizationError:
        return False
    except RequestError:
        return True
    return True


def refusal(key: ShareKey) -> RequestError:
    """Return the error for a partition whose topic the client may not read."""
    return RequestError(f"{key}: the topic may not be read", ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def share_acknowledge(call: Call, body: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    """Answered when it is stored. At the final epoch what the member still has is given back too."""
    shares = call.broker.shares
    try:
        group, member = member_of(body)
        shares.sessions_at(call.door.node_id).acknowledge(group, member, body.share_session_epoch)
    except RequestError as exc:
        return ShareAcknowledgeResponse(error_code=exc.code, error_message=exc.message, responses=[], node_endpoints=[])
    outcome = await acknowledge(call, member, said_in(group, body), renews=body.is_renew_ack)
    if body.share_session_epoch == FINAL_SHARE_EPOCH:
        await shares.release_member(group, member, call.door.node_id)
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for key, error in outcome.items():
        topic = topics.setdefault(key.topic_id, ShareAcknowledgeTopicResponse(topic_id=key.topic_id, partitions=[]))
        topic.partitions.append(
            ShareAcknowledgePartitionData(
                partition_index=key.partition,
                error_code=error_code(error),
                error_message=error_message(error),
                current_leader=ShareLeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            )
        )
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=shares.config_of(group).record_lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[],
    )
