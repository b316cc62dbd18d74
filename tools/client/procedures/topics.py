"""Procedures that need more than one call, or that search a response, as generators: requests out, responses in.

A procedure yields request messages, receives their responses and returns its result. So the trio client and the blocking one
share every decision and differ only in their driver. An entry's error is raised; its message names the entry.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from ....protocol.errors import RequestError, UnknownTopicOrPartitionError
from ....protocol.limits import MAX_PARTITIONS_PER_REQUEST
from ....protocol.native.messages import (
    MetadataRequest,
    OffsetsForTimesPartition,
    OffsetsForTimesPartitionResponse,
    OffsetsForTimesRequest,
    RequestMessage,
    TopicMetadata,
)
from ....protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, Isolation, TopicPartition

T = TypeVar("T")
Procedure = Generator[RequestMessage, Any, T]


@attrs.frozen
class AtOffset:
    """A place in a partition: this offset."""

    offset: int


@attrs.frozen
class AtTime:
    """A place in a partition: the first record at or after this time in ms; its end when there is none."""

    timestamp: int


@attrs.frozen
class Shifted:
    """A place in a partition: so many records after another place, or before it when negative; not before the start."""

    origin: AtTime
    records: int


Place = AtOffset | AtTime | Shifted
EARLIEST: Final = AtTime(EARLIEST_TIMESTAMP)
"""The log start offset."""
LATEST: Final = AtTime(LATEST_TIMESTAMP)
"""The high watermark."""


def answer_to(request: RequestMessage) -> Procedure[Any]:
    """The answer, as it comes."""
    return (yield request)


def describe_topic(name: str) -> Procedure[TopicMetadata]:
    """Return a topic and its partitions."""
    response = yield MetadataRequest((name,))
    topics: Sequence[TopicMetadata] = checked(response.topics)
    for topic in topics:
        if topic.name == name:
            return topic
    raise UnknownTopicOrPartitionError(f"the server's response leaves out topic {name!r}")


def partitions_of(topics: Iterable[str | TopicPartition]) -> Procedure[list[TopicPartition]]:
    """The partitions meant: those named, and all of each topic that is named without one."""
    found: list[TopicPartition] = []
    for topic in topics:
        if isinstance(topic, TopicPartition):
            found.append(topic)
        else:
            described = yield from describe_topic(topic)
            found += (TopicPartition(topic, partition.partition) for partition in described.partitions)
    return found


def lookup_times(
    timestamps: Mapping[TopicPartition, int], isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> Procedure[dict[TopicPartition, OffsetsForTimesPartitionResponse]]:
    """Look one timestamp up in each partition; where there is no such record, offset and timestamp are -1."""
    entries = yield from offsets_at(list(timestamps.items()), isolation)
    return {TopicPartition(entry.topic, entry.partition): entry for entry in checked(entries)}


def offsets_at(
    questions: Sequence[tuple[TopicPartition, int]], isolation: Isolation
) -> Procedure[list[OffsetsForTimesPartitionResponse]]:
    """The answers for partitions and timestamps, in order, with their errors; as many at a time as a request takes."""
    found: list[OffsetsForTimesPartitionResponse] = []
    for first in range(0, len(questions), MAX_PARTITIONS_PER_REQUEST):
        some = questions[first : first + MAX_PARTITIONS_PER_REQUEST]
        entries = tuple(OffsetsForTimesPartition(*partition, timestamp) for partition, timestamp in some)
        response = yield OffsetsForTimesRequest(entries, isolation)
        found += response.partitions
    return found


def locate(
    partitions: Sequence[TopicPartition], place: Place, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> Procedure[dict[TopicPartition, int]]:
    """The offset that a place is at, in each partition. A time after the last record is the end of what can be read."""
    if isinstance(place, AtOffset):
        return dict.fromkeys(partitions, place.offset)
    if isinstance(place, Shifted):
        starts = yield from locate(partitions, EARLIEST, isolation)
        origins = yield from locate(partitions, place.origin, isolation)
        return {partition: max(starts[partition], origin + place.records) for partition, origin in origins.items()}
    found = yield from lookup_times(dict.fromkeys(partitions, place.timestamp), isolation)
    offsets = {partition: entry.offset for partition, entry in found.items()}
    beyond = [partition for partition, offset in offsets.items() if offset == NO_OFFSET]
    ends = yield from lookup_times(dict.fromkeys(beyond, LATEST_TIMESTAMP), isolation)
    return offsets | {partition: entry.offset for partition, entry in ends.items()}


def checked(entries: Sequence[T]) -> Sequence[T]:
    """The entries of an answer, when none has an error; else that error is raised."""
    for entry in entries:
        error: RequestError | None = getattr(entry, "error", None)
        if error is not None:
            raise error
    return entries
