"""What members of share groups say of records, in ShareFetch and in ShareAcknowledge: checked, carried out. Source: KIP-932,
KIP-1222; Kafka's KafkaApis.validateAcknowledgementBatches for the order of the checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import trio

from ....protocol.errors import AuthorizationError, ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages.share_groups import ShareAcknowledgementBatch
from ....protocol.types import TopicPartition
from ...broker import Acknowledgement, AcknowledgeType, ShareKey
from .door import Call

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
    """What a request says of records, by partition."""
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
    """Whether the client may read the topic of a partition; of one that is not there others say so."""
    try:
        name = call.broker.topics.named(key.topic_id)
        call.check_authorized(AclOperation.READ, ResourceType.TOPIC, name)
    except AuthorizationError:
        return False
    except RequestError:
        return True
    return True


def refusal(key: ShareKey) -> RequestError:
    """What is answered where it is not."""
    return RequestError(f"{key}: the topic may not be read", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
