"""ShareFetch: records for a member of a share group, and what it says of those before. Source: KIP-932 (share groups), KIP-1206
(how many records at most), KIP-1222 (renewals); Kafka's KafkaApis.handleShareFetchRequest for the order of the checks.

Answered at once when there are `min_bytes` or a partition has an error, else when there are or `max_wait_ms` is over. What the
member says of records comes first, and its answer waits for the records. The first answer of a session names
every partition in which the group has begun, if it may wait for them; later ones those of which there is something to say.

ShareAcknowledge; what members of share groups say of records, there and in ShareFetch: checked, carried out. Source:
KIP-932, KIP-1222; Kafka's KafkaApis.validateAcknowledgementBatches for the order of the checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import attrs
import trio

from ....protocol.errors import AuthorizationError, ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages import share_groups as messages
from ....protocol.types import TopicPartition
from ...broker import (
    FINAL_SHARE_EPOCH,
    INITIAL_SHARE_EPOCH,
    Acknowledgement,
    AcknowledgeType,
    AcquireMode,
    ShareFetch,
    ShareFetched,
    ShareKey,
)
from .door import Call, error_code, error_message, reported
from .fetch import MAX_FETCH_BYTES, MAX_WAIT_MS
from .session import KEPT_PARTITION_BYTES

_RENEWS_ALONE: Final = ("max_bytes", "min_bytes", "max_records", "max_wait_ms")
"""Have to be 0 in a request that renews locks: it fetches nothing."""


async def share_fetch(call: Call, body: messages.ShareFetchRequest) -> messages.ShareFetchResponse:
    """Acquire and return the available records of the partitions in the member's session."""
    try:
        group, member = member_of(body)
        if body.is_renew_ack and (wrong := [name for name in _RENEWS_ALONE if getattr(body, name)]):
            raise InvalidRequestError(f"a request that renews locks has {', '.join(wrong)} other than 0")
        said = {key: batches for key, batches in said_in(group, body).items() if batches}
        partitions = _in_session(call, body, said)
    except RequestError as exc:
        if exc.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            with call.session.parked(_wait_s(body)):
                await trio.sleep_forever()
        raise
    outcome = await acknowledge(call, member, said, renews=body.is_renew_ack)
    if body.share_acquire_mode not in set(AcquireMode):
        return messages.ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=[], node_endpoints=[])
    fetched: list[ShareFetched] = []
    if body.share_session_epoch == FINAL_SHARE_EPOCH:
        await call.broker.shares.release_member(group, member, call.door.node_id)
    elif not body.is_renew_ack:
        refused = {key for key in partitions if not is_allowed(call, key)}
        max_bytes = max(0, min(body.max_bytes, MAX_FETCH_BYTES))
        fetch = ShareFetch(
            group_id=group,
            member_id=member,
            partitions=[key for key in partitions if key not in refused],
            min_bytes=min(body.min_bytes, max_bytes),
            max_bytes=max_bytes,
            max_records=body.max_records,
            batch_size=body.batch_size,
            mode=AcquireMode(body.share_acquire_mode),
            waits=_wait_s(body) > 0,
            begins_session=body.share_session_epoch == INITIAL_SHARE_EPOCH,
        )
        fetched = [ShareFetched(key, error=refusal(key)) for key in partitions if key in refused]
        fetched += await _fetched(call, fetch, _wait_s(body))
    return _response(call, group, fetched, outcome)


def _wait_s(body: messages.ShareFetchRequest) -> float:
    return max(0, min(body.max_wait_ms, MAX_WAIT_MS)) / 1000


def _in_session(call: Call, body: messages.ShareFetchRequest, said: Said) -> Sequence[ShareKey]:
    """The partitions that are asked for, in the session that goes on with it: with each request another one comes first. Raises
    RequestError."""
    sessions = call.broker.shares.sessions_at(call.door.node_id)
    group, member, epoch = body.group_id or "", body.member_id or "", body.share_session_epoch
    named = list(said_in(group, body))
    if epoch == INITIAL_SHARE_EPOCH:
        session = sessions.begin(group, member, named, call.session, says_something=bool(said))
    else:
        forgotten = [
            ShareKey(group, topic.topic_id, number) for topic in body.forgotten_topics_data for number in topic.partitions
        ]
        session = sessions.go_on(group, member, epoch, named, forgotten)
    partitions = list(session.partitions)
    first = epoch % len(partitions) if partitions and epoch > 0 else 0
    return partitions[first:] + partitions[:first]


async def _fetched(call: Call, fetch: ShareFetch, wait_s: float) -> list[ShareFetched]:
    """Return the available records now, or once they are enough, or when the wait ends."""
    fetched, is_enough = await _take(call, fetch, is_last=wait_s <= 0)
    deadline = trio.current_time() + wait_s
    kept_bytes = KEPT_PARTITION_BYTES * len(fetch.partitions)
    while not is_enough:
        with call.session.parked(deadline - trio.current_time(), kept_bytes) as scope:
            await call.broker.share_fetches.wait(fetch)
        fetched, is_enough = await _take(call, fetch, is_last=scope.cancelled_caught)
    return fetched


async def _take(call: Call, fetch: ShareFetch, *, is_last: bool) -> tuple[list[ShareFetched], bool]:
    """As far as there is memory for it."""
    transport, wanted = call.session.transport, fetch.wanted_bytes
    room = transport.reserve(wanted)
    asked = fetch if room >= wanted else attrs.evolve(fetch, max_bytes=room, min_bytes=min(fetch.min_bytes, room))
    try:
        return await call.broker.share_fetches.take(asked, is_last=is_last)
    finally:
        transport.unreserve(room)


# ---- what is answered ------------------------------------------------------------------------------------------------------


def _response(call: Call, group: str, fetched: Sequence[ShareFetched], outcome: Outcome) -> messages.ShareFetchResponse:
    answers = {each.key: _partition(each) for each in fetched}
    for key, error in outcome.items():
        answer = answers.setdefault(key, _partition(ShareFetched(key)))
        answer.acknowledge_error_code, answer.acknowledge_error_message = error_code(error), error_message(error)
    return messages.ShareFetchResponse(
        acquisition_lock_timeout_ms=call.broker.shares.config_of(group).record_lock_duration_ms,
        responses=_by_topic(answers),
        node_endpoints=[],
    )


def _by_topic(answers: Mapping[ShareKey, messages.ShareFetchPartitionData]) -> list[messages.ShareFetchableTopicResponse]:
    topics: dict[bytes, messages.ShareFetchableTopicResponse] = {}
    for key, answer in answers.items():
        topic = topics.setdefault(key.topic_id, messages.ShareFetchableTopicResponse(topic_id=key.topic_id, partitions=[]))
        topic.partitions.append(answer)
    return list(topics.values())


def _partition(fetched: ShareFetched) -> messages.ShareFetchPartitionData:
    return reported(
        messages.ShareFetchPartitionData,
        fetched.error,
        partition_index=fetched.key.partition,
        current_leader=messages.ShareLeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        records=fetched.records,
        acquired_records=[
            messages.ShareAcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in fetched.acquired
        ],
    )


MAX_MEMBER_ID_CHARS: Final = 36
FIRST_WITH_RENEWALS: Final = 2
PARTITIONS_AT_ONCE: Final = 64
"""Of a request, whose writes are under way together."""

Said = dict[ShareKey, Sequence[messages.ShareAcknowledgementBatch]]
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


def _checked(call: Call, batches: Iterable[messages.ShareAcknowledgementBatch], *, renews: bool) -> Iterator[Acknowledgement]:
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
            raise InvalidRequestError("the request renews locks but its flag says that it does not")
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


async def share_acknowledge(call: Call, body: messages.ShareAcknowledgeRequest) -> messages.ShareAcknowledgeResponse:
    """Answered when it is stored. At the final epoch what the member still has is given back too."""
    shares = call.broker.shares
    group, member = member_of(body)
    shares.sessions_at(call.door.node_id).acknowledge(group, member, body.share_session_epoch)
    outcome = await acknowledge(call, member, said_in(group, body), renews=body.is_renew_ack)
    if body.share_session_epoch == FINAL_SHARE_EPOCH:
        await shares.release_member(group, member, call.door.node_id)
    topics: dict[bytes, messages.ShareAcknowledgeTopicResponse] = {}
    for key, error in outcome.items():
        topic = topics.setdefault(key.topic_id, messages.ShareAcknowledgeTopicResponse(topic_id=key.topic_id, partitions=[]))
        topic.partitions.append(
            reported(
                messages.ShareAcknowledgePartitionData,
                error,
                partition_index=key.partition,
                current_leader=messages.ShareLeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            )
        )
    return messages.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=shares.config_of(group).record_lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[],
    )
