"""Facts of a request and its response, in a few small tuples, for `broker.story()`.

The log of requests keeps them for 4,096 requests. So they hold no records, no bytes of a frame, and no more than MAX_PLACES
partitions.

| API | facts of the request | of the response |
|---|---|---|
| Produce | (topic, partition, records, producer) | (topic, partition, base offset) of those stored |
| Fetch | (topic, partition, offset) that are named | |
| OffsetCommit, TxnOffsetCommit | (topic, partition, offset) | |
| ListOffsets | (topic, partition, timestamp) | (topic, partition, offset) |
| JoinGroup | | generation, member id, whether it leads |
| SyncGroup | | assignment, as bytes |
| heartbeats of groups with server-side assignment | member epoch | member id, member epoch, assignment |
| ApiVersions, SaslAuthenticate | name and version of the software | user |
| InitProducerId, EndTxn | whether it commits | producer id and epoch |

A producer is (id, epoch, first sequence), an assignment ((topic or subtopology, partitions), ...) or None.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from ....protocol.errors import RequestError
from ....protocol.kafka.apis import ApiKey
from ....protocol.records.batch import RECORD_BATCH_OVERHEAD
from ...listeners.kafka.session import Turn

UUID_BYTES: Final = 16
MAX_PLACES: Final = 16
"""Partitions of one request whose facts are kept."""
MAX_ASSIGNMENT_BYTES: Final = 4096
"""Of one member: some 500 partitions. A larger assignment is not kept."""

Facts = tuple[Any, ...]
TopicNamed = Callable[[bytes], str]

_PRODUCER: Final = struct.Struct(">qhii")
_PRODUCER_AT: Final = 43
"""Where producer id, epoch, base sequence and the count of records lie in a batch."""


def facts_of_request(body: Any, key: ApiKey, named: TopicNamed) -> Facts:
    """Return the facts of a request. `named` returns the name of a topic's id, or raises RequestError."""
    find = _OF_REQUEST.get(key)
    return () if find is None else tuple(find(body, named))


def facts_of_response(body: Any, turn: Turn, named: TopicNamed) -> Facts:
    """Return the facts of the response to a turn's request."""
    key = turn.request.api.key
    find = _OF_RESPONSE.get(key)
    if find is not None:
        with contextlib.suppress(AttributeError, TypeError):  # a function of the test may have answered with anything
            return tuple(find(body, named))
    return (turn.session.user,) if key is ApiKey.SASL_AUTHENTICATE else ()


def _name(topic: Any, field: str, named: TopicNamed) -> str:
    if name := getattr(topic, field, ""):
        return str(name)
    topic_id = getattr(topic, "topic_id", b"")
    if len(topic_id) != UUID_BYTES:
        return ""  # a request may name no topic
    try:
        return named(topic_id)
    except RequestError:
        return str(topic_id.hex())


def _places(
    topics: str, name: str, partitions: str, number: str, value: str, is_told: Callable[[Any], bool] = lambda _: True
) -> Callable[[Any, TopicNamed], Iterable[Facts]]:
    """A function that finds (topic, partition, value) in a message."""
    numbers = attrgetter(number, value)

    def find(body: Any, named: TopicNamed) -> Iterable[Facts]:
        pairs = ((_name(topic, name, named), each) for topic in getattr(body, topics) for each in getattr(topic, partitions))
        return ((topic, *numbers(each)) for topic, each in islice(pairs, MAX_PLACES) if is_told(each))

    return find


def _produced(body: Any, named: TopicNamed) -> Iterator[Facts]:
    pairs = ((_name(topic, "name", named), each) for topic in body.topic_data for each in topic.partition_data)
    for topic, each in islice(pairs, MAX_PLACES):
        if each.records is not None and len(each.records) >= RECORD_BATCH_OVERHEAD:
            *producer, count = _PRODUCER.unpack_from(each.records, _PRODUCER_AT)
            yield topic, each.index, count, tuple(producer)


def _assigned(body: Any, named: TopicNamed) -> Facts:
    if hasattr(body, "active_tasks"):
        topics = body.active_tasks
    else:
        topics = None if body.assignment is None else body.assignment.topic_partitions
    places = None
    if topics is not None:
        some = islice(topics, MAX_PLACES)
        places = tuple((_name(each, "subtopology_id", named), tuple(each.partitions[:MAX_PLACES])) for each in some)
    return body.member_id, body.member_epoch, places


def _is_stored(partition: Any) -> bool:
    return not partition.error_code


Find = Callable[[Any, TopicNamed], Iterable[Any]]
_HEARTBEATS: Final = (
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
)
_OF_REQUEST: Final[Mapping[ApiKey, Find]] = {
    ApiKey.PRODUCE: _produced,
    ApiKey.FETCH: _places("topics", "topic", "partitions", "partition", "fetch_offset"),
    ApiKey.OFFSET_COMMIT: _places("topics", "name", "partitions", "partition_index", "committed_offset"),
    ApiKey.TXN_OFFSET_COMMIT: _places("topics", "name", "partitions", "partition_index", "committed_offset"),
    ApiKey.LIST_OFFSETS: _places("topics", "name", "partitions", "partition_index", "timestamp"),
    ApiKey.API_VERSIONS: lambda body, _: (body.client_software_name, body.client_software_version),
    ApiKey.END_TXN: lambda body, _: (body.committed,),
    **dict.fromkeys(_HEARTBEATS, lambda body, _: (body.member_epoch,)),
}
_OF_RESPONSE: Final[Mapping[ApiKey, Find]] = {
    ApiKey.PRODUCE: _places("responses", "name", "partition_responses", "index", "base_offset", _is_stored),
    ApiKey.LIST_OFFSETS: _places("topics", "name", "partitions", "partition_index", "offset", _is_stored),
    ApiKey.JOIN_GROUP: lambda body, _: (body.generation_id, body.member_id, body.leader == body.member_id),
    ApiKey.SYNC_GROUP: lambda body, _: ((bytes(body.assignment) if len(body.assignment) <= MAX_ASSIGNMENT_BYTES else None),),
    ApiKey.INIT_PRODUCER_ID: lambda body, _: (body.producer_id, body.producer_epoch),
    **dict.fromkeys(_HEARTBEATS, _assigned),
}
