"""Partitions of members as records have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ....protocol.coordinator.consumer_group_records import ConsumerGroupCurrentPartitions, ConsumerGroupTopicPartitions
from ..consumer_assignors import Partitions, TopicPartitionId

PartitionEpochs = Mapping[TopicPartitionId, int]
"""Partitions, and since which epoch of its member each of them is the member's."""
NO_EPOCHS: Final[PartitionEpochs] = {}


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


def recorded_epochs(partitions: Partitions, since: PartitionEpochs) -> list[ConsumerGroupCurrentPartitions]:
    return [
        ConsumerGroupCurrentPartitions(
            topic_id=topic_id, partitions=numbers, assignment_epochs=[since[topic_id, number] for number in numbers]
        )
        for topic_id, numbers in by_topic(partitions).items()
    ]


def epochs_from_record(topics: Iterable[ConsumerGroupCurrentPartitions], member_epoch: int) -> PartitionEpochs:
    """Where a record does not say since when, or not for each partition, it is since the member's present epoch."""
    found: dict[TopicPartitionId, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        found |= {(topic.topic_id, number): epoch for number, epoch in zip(topic.partitions, epochs, strict=True)}
    return found
