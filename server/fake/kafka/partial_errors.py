"""A request of which some partitions fail and the others are served: it is divided, and the answers are put together again.

ShareFetch and ShareAcknowledge (KIP-932) name partitions by id, and go on with those of a session; the errors of a partition
stand beside what became of what was said of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from ....protocol.errors import ErrorCode
from ....protocol.kafka.apis import ITSELF, Api, ApiKey
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
from ...listeners.kafka.error_answers import SHAPES, Repeated, element_of, repeat
from .subjects import TOPICS, Place, topic_of

IsAffected = Callable[[str, int | None], bool]
"""(topic, partition) -> whether it fails; None where a request names topics only."""
TopicNamed = Callable[[bytes], str]

NESTED: Final = "."


class Parts(NamedTuple):
    """A request in two parts: the served one and the failed one. None for an empty part."""

    served: Any | None
    failed: Any | None


def divide(key: ApiKey, version: int, request: Any, is_affected: IsAffected, topic_named: TopicNamed) -> Parts:
    """Take the affected topics and partitions out of a request. One that cannot be divided fails as a whole."""
    places = [place for place in TOPICS[key] if NESTED not in place.path and getattr(request, place.path)]
    if len(places) != 1 or not any(version in each.versions for each in SHAPES[key].lists):
        return Parts(None, request)
    [place] = places
    served, failed = [], []
    for element in getattr(request, place.path):
        name = topic_of(element, place, topic_named)
        good, bad = _divided(element, place, partial(is_affected, name))
        served += good
        failed += bad
    return Parts(_with(request, place.path, served) if served else None, _with(request, place.path, failed) if failed else None)


def _divided(element: Any, place: Place, is_affected: Callable[[int | None], bool]) -> tuple[list[Any], list[Any]]:
    if place.partitions is None:
        return ([], [element]) if is_affected(None) else ([element], [])
    good: list[Any] = []
    bad: list[Any] = []
    for each in getattr(element, place.partitions):
        number = each if place.number == ITSELF else getattr(each, place.number)
        (bad if is_affected(number) else good).append(each)
    return (
        [_with(element, place.partitions, good)] if good else [],
        [_with(element, place.partitions, bad)] if bad else [],
    )


def _with(value: Any, name: str, content: Any) -> Any:
    changed = copy.copy(value)
    setattr(changed, name, content)
    return changed


def put_together(api: Api, version: int, response: Any, failed: Any, code: ErrorCode, message: str | None) -> Any:
    """The answer to the served part with an error for each element of the failed one; it replaces an element of the same
    name, or is added."""
    for each in SHAPES[api.key].lists:
        if version in each.versions:
            additions = repeat(each, api.response, failed, code, message)
            _merge(each, getattr(response, each.answer), additions)
    return response


def _merge(each: Repeated, elements: list[Any], additions: list[Any]) -> None:
    keys = [_key(each, element) for element in elements]
    for addition in additions:
        key = _key(each, addition)
        if key not in keys:
            elements.append(addition)
        elif each.inner is None:
            elements[keys.index(key)] = addition
        else:
            _merge(each.inner, getattr(elements[keys.index(key)], each.inner.answer), getattr(addition, each.inner.answer))


def _key(each: Repeated, element: Any) -> tuple[Any, ...]:
    return tuple(getattr(element, name) for name in each.copied)


# ---- reads whose whole error would say something else ----------------------------------------------------------------------

SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Errors of a fetch, not of its partitions."""


def failed_fetch(response: Any, asked: list[tuple[str, bytes, int]], code: ErrorCode) -> Any:
    """Put the error into a fetch response for these partitions, (topic, id, number), in place of their content."""
    [topics] = SHAPES[ApiKey.FETCH].lists
    assert topics.inner is not None
    topic_class = element_of(type(response), topics.answer)
    partition_class = element_of(topic_class, topics.inner.answer)
    for topic, topic_id, number in asked:
        partition = partition_class()
        for name, value in {**topics.inner.fixed, "partition_index": number, "error_code": int(code)}.items():
            setattr(partition, name, value)
        whole = topic_class()
        whole.topic, whole.topic_id, whole.partitions = topic, topic_id, [partition]
        _merge_fetched(response.responses, whole)
    return response


def _merge_fetched(topics: list[Any], addition: Any) -> None:
    [partition] = addition.partitions
    for topic in topics:
        if (topic.topic, topic.topic_id) == (addition.topic, addition.topic_id):
            topic.partitions = [each for each in topic.partitions if each.partition_index != partition.partition_index]
            topic.partitions.append(partition)
            return
    topics.append(addition)


def failed_metadata(response: Any, is_affected: IsAffected, code: ErrorCode) -> Any:
    """A metadata answer with the error for these topics; its brokers stay, since clients that lose all of them do not come
    back."""
    for topic in response.topics:
        if is_affected(topic.name or "", None):
            topic.error_code, topic.partitions = int(code), []
    return response


SHARING: Final = frozenset({ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE})

Places = Mapping[tuple[bytes, int], bool]
"""(topic id, partition) -> whether something is said of its records."""


def shared_in_session(door: KafkaDoor, body: Any) -> Iterable[ShareKey]:
    """The partitions of the share session that a request continues."""
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
    """Add them to the session anyway: the client expects them in it."""
    group, member = body.group_id or "", body.member_id or ""
    door.broker.shares.sessions_at(door.node_id).remember(group, member, [ShareKey(group, *place) for place in failed])


def failed_sharing(response: Any, failed: Places, code: ErrorCode) -> Any:
    """Put the error into a response for these partitions, in place of their content. A response that is an error stays."""
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
