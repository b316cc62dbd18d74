"""A request of which some partitions fail and the others are served: it is divided, and the answers are put together again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from ....protocol.errors import ErrorCode
from ....protocol.kafka.apis import ITSELF, Api, ApiKey
from ...listeners.kafka.error_answers import SHAPES, Repeated, element_of, repeat
from .subjects import TOPICS, Place, topic_of

IsAffected = Callable[[str, int | None], bool]
"""(topic, partition) -> whether it fails; None where a request names topics only."""
TopicNamed = Callable[[bytes], str]

NESTED: Final = "."


class Parts(NamedTuple):
    """A request in two parts: the one that is served and the one that fails. None for an empty part."""

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
    """Put the error into a fetch answer for these partitions, (topic, id, number), in place of what it says of them."""
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
