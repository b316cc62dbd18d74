"""Requests of share consumers of which some partitions fail: ShareFetch and ShareAcknowledge (KIP-932). They name partitions by
id, and go on with those of a session; the errors of a partition stand beside what became of what was said of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from ....protocol.errors import ErrorCode
from ....protocol.kafka.apis import ApiKey
from ....protocol.kafka.messages.share_groups import (
    ShareAcknowledgePartitionData,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchResponse,
    ShareLeaderIdAndEpoch,
    ShareTopicPartitions,
)
from ...broker import ShareKey
from ...listeners.kafka.door import KafkaDoor

SHARING: Final = frozenset({ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE})

Places = Mapping[tuple[bytes, int], bool]
"""(topic id, partition) -> whether something is said of its records."""


def shared_in_session(door: KafkaDoor, body: Any) -> Iterable[ShareKey]:
    """The partitions of the share session that a request goes on with."""
    session = door.broker.shares.sessions_at(door.node_id).find(body.group_id or "", body.member_id or "")
    return () if session is None else tuple(session.partitions)


def affected(door: KafkaDoor, key: ApiKey, body: Any, is_failed: Callable[[bytes, int], bool]) -> Places:
    """Return the partitions that fail, among those that a request names or its session adds."""
    asked = {
        (topic.topic_id, each.partition_index): bool(each.acknowledgement_batches)
        for topic in body.topics
        for each in topic.partitions
    }
    if key is ApiKey.SHARE_FETCH and body.share_session_epoch > 0:
        forgotten = {(topic.topic_id, number) for topic in body.forgotten_topics_data for number in topic.partitions}
        for each in shared_in_session(door, body):
            if each[1:] not in forgotten:
                asked.setdefault((each.topic_id, each.partition), False)
    return {place: said for place, said in asked.items() if is_failed(*place)}


def without(key: ApiKey, body: Any, failed: Collection[tuple[bytes, int]]) -> Any:
    """The request without these partitions, which does not wait."""
    body = copy.copy(body)
    body.topics = [topic for topic in (_cut(topic, failed) for topic in body.topics) if topic.partitions]
    if key is ApiKey.SHARE_FETCH:
        body.max_wait_ms = 0
        if body.share_session_epoch > 0:
            forgotten = [ShareTopicPartitions(topic_id=topic_id, partitions=[number]) for topic_id, number in failed]
            body.forgotten_topics_data = [*body.forgotten_topics_data, *forgotten]
    return body


def _cut(topic: Any, failed: Collection[tuple[bytes, int]]) -> Any:
    topic = copy.copy(topic)
    topic.partitions = [each for each in topic.partitions if (topic.topic_id, each.partition_index) not in failed]
    return topic


def remember(door: KafkaDoor, body: Any, failed: Iterable[tuple[bytes, int]]) -> None:
    """Put them into the session all the same: the client takes them for part of it."""
    group, member = body.group_id or "", body.member_id or ""
    door.broker.shares.sessions_at(door.node_id).remember(group, member, [ShareKey(group, *place) for place in failed])


def failed_sharing(response: Any, failed: Places, code: ErrorCode) -> Any:
    """Put the error into an answer for these partitions, in place of what it says of them. An answer that is an error stays."""
    if response is None or response.error_code:
        return response
    is_fetch = isinstance(response, ShareFetchResponse)
    for topic in response.responses:
        topic.partitions = [each for each in topic.partitions if (topic.topic_id, each.partition_index) not in failed]
    response.responses = [topic for topic in response.responses if topic.partitions]
    response.responses += _failures(failed, int(code), is_fetch=is_fetch)
    return response


def _failures(failed: Places, code: int, *, is_fetch: bool) -> Iterator[Any]:
    nobody = ShareLeaderIdAndEpoch(leader_id=0, leader_epoch=0)
    for (topic_id, number), says_something in failed.items():
        if is_fetch:
            fetched = ShareFetchPartitionData(
                partition_index=number,
                error_code=code,
                acknowledge_error_code=code if says_something else 0,
                current_leader=nobody,
                records=b"",
                acquired_records=[],
            )
            yield ShareFetchableTopicResponse(topic_id=topic_id, partitions=[fetched])
        else:
            said = ShareAcknowledgePartitionData(partition_index=number, error_code=code, current_leader=nobody)
            yield ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=[said])
