"""Partitions of members as records have them."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.coordinator.consumer_group_records import ConsumerGroupTopicPartitions
from ..consumer_assignors import Partitions


def by_topic(partitions: Partitions) -> dict[bytes, list[int]]:
    """Numbers by topic id, in order, so that equal assignments have equal bytes."""
    found: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        found.setdefault(topic_id, []).append(number)
    return found


def recorded(partitions: Partitions) -> list[ConsumerGroupTopicPartitions]:
    return [ConsumerGroupTopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in by_topic(partitions).items()]


def from_record(topics: Iterable[ConsumerGroupTopicPartitions]) -> Partitions:
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)
