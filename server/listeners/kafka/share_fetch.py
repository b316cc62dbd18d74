"""ShareFetch: records for a member of a share group, and what it says of those before. Source: KIP-932 (share groups), KIP-1206
(how many records at most), KIP-1222 (renewals); Kafka's KafkaApis.handleShareFetchRequest for the order of the checks.

Answered at once when there are `min_bytes` or a partition has an error, else when there are or `max_wait_ms` is over. What the
member says of records comes first, and its answer waits for the records. The first answer of a session names
every partition in which the group has begun, if it may wait for them; later ones those of which there is something to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.messages.share_groups import (
    ShareAcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareLeaderIdAndEpoch,
)
from ...broker import FINAL_SHARE_EPOCH, INITIAL_SHARE_EPOCH, AcquireMode, ShareFetch, ShareFetched, ShareKey
from .door import Call, error_code, error_message
from .fetch import MAX_FETCH_BYTES, MAX_WAIT_MS
from .session import KEPT_PARTITION_BYTES
from .share_acknowledgements import Outcome, Said, acknowledge, is_allowed, member_of, refusal, said_in

_RENEWS_ALONE: Final = ("max_bytes", "min_bytes", "max_records", "max_wait_ms")
"""Have to be 0 in a request that renews locks: it fetches nothing."""


async def share_fetch(call: Call, body: ShareFetchRequest) -> ShareFetchResponse:
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
        return ShareFetchResponse(error_code=exc.code, error_message=exc.message, responses=[], node_endpoints=[])
    outcome = await acknowledge(call, member, said, renews=body.is_renew_ack)
    if body.share_acquire_mode not in set(AcquireMode):
        return ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=[], node_endpoints=[])
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


def _wait_s(body: ShareFetchRequest) -> float:
    return max(0, min(body.max_wait_ms, MAX_WAIT_MS)) / 1000


def _in_session(call: Call, body: ShareFetchRequest, said: Said) -> Sequence[ShareKey]:
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


def _response(call: Call, group: str, fetched: Sequence[ShareFetched], outcome: Outcome) -> ShareFetchResponse:
    answers = {each.key: _partition(each) for each in fetched}
    for key, error in outcome.items():
        answer = answers.setdefault(key, _partition(ShareFetched(key)))
        answer.acknowledge_error_code, answer.acknowledge_error_message = error_code(error), error_message(error)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=call.broker.shares.config_of(group).record_lock_duration_ms,
        responses=_by_topic(answers),
        node_endpoints=[],
    )


def _by_topic(answers: Mapping[ShareKey, ShareFetchPartitionData]) -> list[ShareFetchableTopicResponse]:
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for key, answer in answers.items():
        topic = topics.setdefault(key.topic_id, ShareFetchableTopicResponse(topic_id=key.topic_id, partitions=[]))
        topic.partitions.append(answer)
    return list(topics.values())


def _partition(fetched: ShareFetched) -> ShareFetchPartitionData:
    return ShareFetchPartitionData(
        partition_index=fetched.key.partition,
        error_code=error_code(fetched.error),
        error_message=error_message(fetched.error),
        current_leader=ShareLeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        records=fetched.records,
        acquired_records=[
            ShareAcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in fetched.acquired
        ],
    )
