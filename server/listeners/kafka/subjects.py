"""Which topics, partitions, groups and transactional ids a request names: what rules and the log of requests look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from ....protocol.errors import RequestError
from ....protocol.kafka.apis import ApiKey
from ....protocol.kafka.connection import Request
from ...faults.rules import Subject
from .error_answers import ITSELF

NO_TOPIC_ID: Final = bytes(16)


class Place(NamedTuple):
    """Where a request has a list of topics. `path`: `a.b` is every b of every a; ITSELF: the element is the value."""

    path: str
    name: str = "name"
    partitions: str | None = None
    number: str = ITSELF


_PARTITIONS: Final = (Place("topics", "name", "partitions", "partition_index"),)
_NAMES: Final = (Place("topics"),)
_NUMBERS: Final = (Place("topics", "name", "partition_indexes"),)

TOPICS: Final[dict[ApiKey, tuple[Place, ...]]] = {
    ApiKey.PRODUCE: (Place("topic_data", "name", "partition_data", "index"),),
    ApiKey.FETCH: (Place("topics", "topic", "partitions", "partition"),),
    ApiKey.LIST_OFFSETS: _PARTITIONS,
    ApiKey.METADATA: _NAMES,
    ApiKey.OFFSET_COMMIT: _PARTITIONS,
    ApiKey.OFFSET_FETCH: (*_NUMBERS, Place("groups.topics", "name", "partition_indexes")),
    ApiKey.CREATE_TOPICS: _NAMES,
    ApiKey.DELETE_TOPICS: (Place("topics"), Place("topic_names", ITSELF)),
    ApiKey.DELETE_RECORDS: _PARTITIONS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (Place("topics", "topic", "partitions", "partition"),),
    ApiKey.ADD_PARTITIONS_TO_TXN: (Place("v3_and_below_topics", "name", "partitions"),),
    ApiKey.WRITE_TXN_MARKERS: (Place("markers.topics", "name", "partition_indexes"),),
    ApiKey.TXN_OFFSET_COMMIT: _PARTITIONS,
    ApiKey.DESCRIBE_LOG_DIRS: (Place("topics", "topic", "partitions"),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (Place("dirs.topics", "name", "partitions"),),
    ApiKey.CREATE_PARTITIONS: _NAMES,
    ApiKey.ELECT_LEADERS: (Place("topic_partitions", "topic", "partitions"),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _PARTITIONS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _NUMBERS,
    ApiKey.OFFSET_DELETE: _PARTITIONS,
    ApiKey.DESCRIBE_PRODUCERS: _NUMBERS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (Place("subscribed_topic_names", ITSELF),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _NAMES,
}

GROUPS: Final[dict[ApiKey, tuple[str, ...]]] = {
    ApiKey.OFFSET_COMMIT: ("group_id",),
    ApiKey.OFFSET_FETCH: ("group_id", "groups.group_id"),
    ApiKey.JOIN_GROUP: ("group_id",),
    ApiKey.HEARTBEAT: ("group_id",),
    ApiKey.LEAVE_GROUP: ("group_id",),
    ApiKey.SYNC_GROUP: ("group_id",),
    ApiKey.DESCRIBE_GROUPS: ("groups",),
    ApiKey.DELETE_GROUPS: ("groups_names",),
    ApiKey.ADD_OFFSETS_TO_TXN: ("group_id",),
    ApiKey.TXN_OFFSET_COMMIT: ("group_id",),
    ApiKey.OFFSET_DELETE: ("group_id",),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("group_id",),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("group_ids",),
}

TRANSACTIONAL_IDS: Final[dict[ApiKey, tuple[str, ...]]] = {
    ApiKey.PRODUCE: ("transactional_id",),
    ApiKey.INIT_PRODUCER_ID: ("transactional_id",),
    ApiKey.ADD_PARTITIONS_TO_TXN: ("v3_and_below_transactional_id",),
    ApiKey.ADD_OFFSETS_TO_TXN: ("transactional_id",),
    ApiKey.END_TXN: ("transactional_id",),
    ApiKey.TXN_OFFSET_COMMIT: ("transactional_id",),
    ApiKey.DESCRIBE_TRANSACTIONS: ("transactional_ids",),
}

GROUP_KEY: Final = 0
COORDINATOR_KEYS: Final = ("key", "coordinator_keys")


def subject_of(
    request: Request, node: int, topic_named: Callable[[bytes], str], remembered: Iterable[tuple[str, int]] = ()
) -> Subject:
    """What a request is about. `topic_named` answers the name of a topic's id, or raises RequestError. `remembered`: what it
    is about without saying so."""
    key, body = request.api.key, request.body
    topics: dict[str, list[int]] = {}
    for topic, number in remembered:
        topics.setdefault(topic, []).append(number)
    for place in TOPICS.get(key, ()):
        elements = values_at(body, place.path) if "." in place.path else getattr(body, place.path) or ()
        for element in elements:
            numbers = topics.setdefault(topic_of(element, place, topic_named), [])
            if place.partitions is not None:
                numbers += [
                    each if place.number == ITSELF else getattr(each, place.number)
                    for each in getattr(element, place.partitions)
                ]
    groups, transactional_ids = GROUPS.get(key, ()), TRANSACTIONAL_IDS.get(key, ())
    if key is ApiKey.FIND_COORDINATOR:
        groups, transactional_ids = (COORDINATOR_KEYS, ()) if body.key_type == GROUP_KEY else ((), COORDINATOR_KEYS)
    return Subject(
        request.api.name,
        request.client_id or "-",
        node,
        topics,
        [name for path in groups for name in values_at(body, path) if name] if groups else (),
        [name for path in transactional_ids for name in values_at(body, path) if name] if transactional_ids else (),
        getattr(body, "member_id", None) or "",
    )


def topic_of(element: Any, place: Place, topic_named: Callable[[bytes], str]) -> str:
    """A topic's name; its id in hexadecimal digits when nobody has it."""
    if place.name == ITSELF:
        return str(element)
    topic_id = getattr(element, "topic_id", NO_TOPIC_ID)
    if topic_id == NO_TOPIC_ID:
        return getattr(element, place.name) or ""
    try:
        return topic_named(topic_id)
    except RequestError:
        return str(topic_id.hex())


def values_at(value: Any, path: str) -> Iterator[Any]:
    """What stands in a field: the elements of a list, or the value alone. None is nothing."""
    name, _, rest = path.partition(".")
    found = getattr(value, name, None)
    for each in found if isinstance(found, list) else () if found is None else (found,):
        if rest:
            yield from values_at(each, rest)
        else:
            yield each
