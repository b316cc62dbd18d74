"""A topology with the present topics: its number of tasks, missing internal topics, problems (KIP-1071; Kafka:
InternalTopicManager, ConfiguredTopology)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import attrs

from ....protocol.coordinator.streams_group_records import StreamsGroupSubtopology, StreamsGroupTopicInfo
from ..assigned.values import TopicImage
from .partition_counts import IncorrectlyPartitionedError, PartitionCounts
from .topology import Topology, invalid_topology
from .values import InternalTopic, StreamsStatus, StreamsStatusCode, SubtopologyDescription

MAX_TASKS: Final = 10_000
"""Of an application: so many are assigned in one step."""
TOPICS_TOLD: Final = 3


@attrs.frozen(kw_only=True)
class ConfiguredSubtopology:
    subtopology_id: str
    task_count: int
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    state_changelog_topics: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.state_changelog_topics)

    @property
    def internal_topics(self) -> tuple[InternalTopic, ...]:
        return (*self.repartition_source_topics, *self.state_changelog_topics)

    def described(self) -> SubtopologyDescription:
        return SubtopologyDescription(
            subtopology_id=self.subtopology_id,
            source_topics=self.source_topics,
            repartition_sink_topics=self.repartition_sink_topics,
            state_changelog_topics=self.state_changelog_topics,
            repartition_source_topics=self.repartition_source_topics,
        )


@attrs.frozen(kw_only=True)
class ConfiguredTopology:
    """See the module."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """None: topics are missing or do not fit."""
    missing: tuple[InternalTopic, ...] = ()
    problem: StreamsStatus | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


def configure(topology: Topology, topics: TopicImage) -> ConfiguredTopology:
    """Return a topology with the present topics. Raises STREAMS_INVALID_TOPOLOGY."""
    parts = topology.subtopologies.values()
    if missing_sources := sorted({topic for part in parts for topic in part.source_topics if topics.find(topic) is None}):
        detail = f"Source topics {_summary(missing_sources)} are missing."
        problem = StreamsStatus(StreamsStatusCode.MISSING_SOURCE_TOPICS, detail)
        return ConfiguredTopology(epoch=topology.epoch, subtopologies=None, problem=problem)
    counts = PartitionCounts(topology, lambda name: None if (found := topics.find(name)) is None else found.partitions)
    try:
        counts.decide()
        configured = {part.subtopology_id: _configured(part, counts) for part in parts}
        if (total := sum(part.task_count for part in configured.values())) > MAX_TASKS:
            raise invalid_topology(f"the topology has {total} tasks, at most {MAX_TASKS} may be")
        missing = _missing(configured.values(), topics)
    except IncorrectlyPartitionedError as exc:
        problem = StreamsStatus(StreamsStatusCode.INCORRECTLY_PARTITIONED_TOPICS, str(exc))
        return ConfiguredTopology(epoch=topology.epoch, subtopologies=None, problem=problem)
    detail = f"Internal topics are missing: {_summary([topic.name for topic in missing])}"
    return ConfiguredTopology(
        epoch=topology.epoch,
        subtopologies=configured,
        missing=missing,
        problem=StreamsStatus(StreamsStatusCode.MISSING_INTERNAL_TOPICS, detail) if missing else None,
    )


def _configured(part: StreamsGroupSubtopology, counts: PartitionCounts) -> ConfiguredSubtopology:
    def internal(topics: list[StreamsGroupTopicInfo]) -> tuple[InternalTopic, ...]:
        return tuple(
            internal_topic(each, each.partitions or counts.decided[each.name])
            for each in sorted(topics, key=lambda each: each.name)
        )

    return ConfiguredSubtopology(
        subtopology_id=part.subtopology_id,
        task_count=counts.tasks_of(part),
        source_topics=tuple(sorted(set(part.source_topics))),
        repartition_sink_topics=tuple(sorted(set(part.repartition_sink_topics))),
        repartition_source_topics=internal(part.repartition_source_topics),
        state_changelog_topics=internal(part.state_changelog_topics),
    )


def internal_topic(topic: StreamsGroupTopicInfo, partitions: int) -> InternalTopic:
    return InternalTopic(
        name=topic.name,
        partitions=partitions,
        replication_factor=topic.replication_factor,
        configs=tuple((config.key, config.value) for config in topic.topic_configs),
    )


def _missing(parts: Collection[ConfiguredSubtopology], topics: TopicImage) -> tuple[InternalTopic, ...]:
    missing: dict[str, InternalTopic] = {}
    for topic in (each for part in parts for each in part.internal_topics):
        found = topics.find(topic.name)
        if found is None:
            missing[topic.name] = topic
        elif found.partitions != topic.partitions:
            raise IncorrectlyPartitionedError(
                f"Existing topic {topic.name} has different number of partitions: expected {topic.partitions}, found "
                f"{found.partitions}"
            )
    return tuple(missing[name] for name in sorted(missing))


def _summary(topics: list[str]) -> str:
    shown, others = ", ".join(topics[:TOPICS_TOLD]), len(topics) - TOPICS_TOLD
    return f"{shown} and {others} additional topics" if others > 0 else shown
