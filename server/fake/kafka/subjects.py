"""Subjects of requests: the topics, partitions, groups and transactional ids that rules and the log of requests match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from ....protocol.errors import RequestError
from ....protocol.kafka.apis import (
    COORDINATOR_KEY,
    GROUP_ID,
    ITSELF,
    PARTITION,
    TOPIC_ID,
    TOPIC_NAME,
    TRANSACTIONAL_ID,
    Api,
    ApiKey,
    ApiTable,
    ServedBy,
    lists_naming,
    paths_to,
    values_at,
)
from ....protocol.kafka.connection import Request
from ....protocol.schema.fields import Entity
from ..faults.rules import Subject

NO_TOPIC_ID: Final = bytes(16)


class Place(NamedTuple):
    """The path of a list of topics in a request. `path`: `a.b` is every b of every a; ITSELF: the element is the value."""

    path: str
    name: str = "name"
    partitions: str | None = None
    number: str = ITSELF


def _places(api: Api) -> tuple[Place, ...]:
    """Topics by name. Requests by id alone, as share consumers send them, are about topics too."""
    places = tuple(_places_naming(api, TOPIC_NAME))
    return places or (tuple(_places_naming(api, TOPIC_ID)) if api.served_by is ServedBy.LEADER else ())


def _places_naming(api: Api, entity: Entity) -> Iterator[Place]:
    for path, field in lists_naming(api, api.request, (entity,)):
        yield Place(path, *_place_of(api, field.element, entity) if isinstance(field.element, type) else (ITSELF,))


def _place_of(api: Api, topic: type, entity: Entity) -> tuple[str, str | None, str]:
    """The field of a topic's name or id, that of its partitions, and in those the one of the number."""
    fields = api.fields_of(topic)
    name = next(each.name for each in fields if each.entity is entity)
    for path, field in lists_naming(api, topic, (PARTITION,)):
        numbers = api.fields_of(field.element) if isinstance(field.element, type) else ()
        return name, path, next((each.name for each in numbers if each.entity is PARTITION), ITSELF)
    return name, None, ITSELF


TOPICS: Final = ApiTable(_places)
GROUPS: Final = ApiTable(lambda api: tuple(paths_to(api, api.request, GROUP_ID)))
TRANSACTIONAL_IDS: Final = ApiTable(lambda api: tuple(paths_to(api, api.request, TRANSACTIONAL_ID)))
COORDINATOR_KEYS: Final = ApiTable(lambda api: tuple(paths_to(api, api.request, COORDINATOR_KEY)))

GROUP_KEY: Final = 0


def subject_of(
    request: Request, node: int, topic_named: Callable[[bytes], str], remembered: Iterable[tuple[str, int]] = ()
) -> Subject:
    """Return the subject of a request. `topic_named` returns the name of a topic's id, or raises RequestError. `remembered`:
    the (topic, partition) pairs that a fetch session adds."""
    key, body = request.api.key, request.body
    topics: dict[str, list[int]] = {}
    for topic, number in remembered:
        topics.setdefault(topic, []).append(number)
    for place in TOPICS[key]:
        elements = values_at(body, place.path) if "." in place.path else getattr(body, place.path) or ()
        for element in elements:
            numbers = topics.setdefault(topic_of(element, place, topic_named), [])
            if place.partitions is not None:
                numbers += [
                    each if place.number == ITSELF else getattr(each, place.number)
                    for each in getattr(element, place.partitions)
                ]
    groups, transactional_ids = GROUPS[key], TRANSACTIONAL_IDS[key]
    if keys := COORDINATOR_KEYS[key]:
        groups, transactional_ids = (keys, ()) if body.key_type == GROUP_KEY else ((), keys)
    return Subject(
        request.api.name,
        request.client_id or "-",
        node,
        topics,
        [name for path in groups for name in values_at(body, path) if name] if groups else (),
        [name for path in transactional_ids for name in values_at(body, path) if name] if transactional_ids else (),
        getattr(body, "member_id", None) or "",
        key is ApiKey.JOIN_GROUP or getattr(body, "member_epoch", 1) <= 0,
    )


def topic_of(element: Any, place: Place, topic_named: Callable[[bytes], str]) -> str:
    """A topic's name, or its id in hexadecimal digits if it has no name."""
    if place.name == ITSELF:
        return str(element)
    topic_id = getattr(element, "topic_id", NO_TOPIC_ID)
    if topic_id == NO_TOPIC_ID and place.name != "topic_id":
        return getattr(element, place.name) or ""
    try:
        return topic_named(topic_id)
    except RequestError:
        return str(topic_id.hex())
