"""The topology of a Streams application: subtopologies, each with the topics that it reads, writes and keeps its state in
(KIP-1071; Kafka: StreamsTopology).

A topology with the present topics: its number of tasks, missing internal topics, problems, and the partition counts of its
internal topics (KIP-1071; Kafka: InternalTopicManager, ConfiguredTopology, RepartitionTopics, CopartitionedTopicsEnforcer,
ChangelogTopics).

A repartition topic without a number has as many partitions as the largest topic that the writing subtopology reads;
copartitioned topics have one number; a changelog has as many as the largest topic of its subtopology. An existing topic counts
as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Self

import attrs

from ....protocol.coordinator.streams_group_records import (
    StreamsGroupSubtopology,
    StreamsGroupTopicInfo,
    StreamsGroupTopologyValue,
)
from ....protocol.errors import ErrorCode, RequestError
from ..assigned.values import TopicImage
from .values import InternalTopic, StreamsStatus, StreamsStatusCode, SubtopologyDescription

MAX_SUBTOPOLOGIES: Final = 500
MAX_TOPICS: Final = 2_000
"""Of all subtopologies together, each counted as often as it is named."""


@attrs.frozen
class Topology:
    """See the module. Two are equal when they have the same epoch and parts; the order of the parts does not matter."""

    epoch: int
    subtopologies: Mapping[str, StreamsGroupSubtopology]
    """By id, in order."""
    readers: Mapping[str, str] = attrs.field(init=False, eq=False)
    """Source topic, external or internal -> the subtopology that reads it."""

    @readers.default
    def _readers(self) -> Mapping[str, str]:
        return {topic: part.subtopology_id for part in self.subtopologies.values() for topic in sources(part)}

    @classmethod
    def of(cls, value: StreamsGroupTopologyValue) -> Self:
        """Of two parts with one id the later one counts. `check_topology` refuses that."""
        parts = {part.subtopology_id: part for part in value.subtopologies}
        return cls(value.epoch, {name: parts[name] for name in sorted(parts)})

    def required_topics(self) -> frozenset[str]:
        """Return the topics without which it cannot run."""
        return frozenset(
            topic
            for part in self.subtopologies.values()
            for topic in (*sources(part), *(each.name for each in part.state_changelog_topics))
        )


def sources(part: StreamsGroupSubtopology) -> Iterator[str]:
    """Yield every topic that a subtopology reads."""
    yield from part.source_topics
    for topic in part.repartition_source_topics:
        yield topic.name


def named_topics(part: StreamsGroupSubtopology) -> Iterator[str]:
    """Yield every topic that a subtopology names, in Kafka's order."""
    yield from part.source_topics
    yield from part.repartition_sink_topics
    for topic in (*part.repartition_source_topics, *part.state_changelog_topics):
        yield topic.name


def invalid_topology(message: str) -> RequestError:
    return RequestError(message, ErrorCode.STREAMS_INVALID_TOPOLOGY)


def check_topology(value: StreamsGroupTopologyValue) -> None:
    """Raises STREAMS_INVALID_TOPOLOGY: Kafka's checks, and our limits. Some of these are an UNKNOWN_SERVER_ERROR in Kafka."""
    for part in value.subtopologies:
        for topic in part.state_changelog_topics:
            if topic.partitions != 0:
                raise invalid_topology(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to {topic.partitions}."
                )
    if value.epoch < 0:
        raise invalid_topology("Topology epoch must be non-negative.")
    if len(value.subtopologies) > MAX_SUBTOPOLOGIES:
        raise invalid_topology(
            f"the topology has {len(value.subtopologies)} subtopologies, at most {MAX_SUBTOPOLOGIES} are allowed"
        )
    names = [part.subtopology_id for part in value.subtopologies]
    if len(set(names)) < len(names):
        raise invalid_topology(f"two subtopologies have the same id, among {', '.join(names[:10])}")
    if (count := sum(_topic_count(part) for part in value.subtopologies)) > MAX_TOPICS:
        raise invalid_topology(f"the topology names {count} topics, at most {MAX_TOPICS} are allowed")
    for part in value.subtopologies:
        _check_copartition_groups(part)
        for topic in part.repartition_source_topics:
            if topic.partitions < 0:
                raise invalid_topology(f"Repartition topic {topic.name} has {topic.partitions} partitions.")


def _topic_count(part: StreamsGroupSubtopology) -> int:
    groups = sum(len(group.source_topics) + len(group.repartition_source_topics) for group in part.copartition_groups)
    return sum(1 for _ in named_topics(part)) + groups + len(part.copartition_groups)


def _check_copartition_groups(part: StreamsGroupSubtopology) -> None:
    for group in part.copartition_groups:
        for indexes, topics in (
            (group.source_topics, part.source_topics),
            (group.repartition_source_topics, part.repartition_source_topics),
        ):
            for index in indexes:
                if not 0 <= index < len(topics):
                    raise invalid_topology(
                        f"subtopology {part.subtopology_id}: a copartition group has topic {index} of {len(topics)}"
                    )


def copartition_groups(part: StreamsGroupSubtopology) -> Iterator[frozenset[str]]:
    """Yield topics of a subtopology that must have equally many partitions."""
    for group in part.copartition_groups:
        yield frozenset(
            (
                *(part.source_topics[index] for index in group.source_topics),
                *(part.repartition_source_topics[index].name for index in group.repartition_source_topics),
            )
        )


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
            raise invalid_topology(f"the topology has {total} tasks, at most {MAX_TASKS} are allowed")
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


CountOf = Callable[[str], int | None]
"""Of the topics that there are; None for one that is not there."""


class IncorrectlyPartitionedError(Exception):
    """Existing topics do not fit together. The message says which."""


@attrs.define(eq=False, repr=False)
class PartitionCounts:
    """The numbers of one topology. Owner: its configuration."""

    topology: Topology
    _existing: CountOf
    decided: dict[str, int] = attrs.field(factory=dict)
    """Of internal topics."""

    def of(self, topic: str) -> int:
        """Return the number of a topic that exists, or that has been decided."""
        count = self.find(topic)
        if count is None:
            raise invalid_topology(f"Number of partitions is not set for topic: {topic}")
        return count

    def find(self, topic: str) -> int | None:
        existing = self._existing(topic)
        return self.decided.get(topic) if existing is None else existing

    def tasks_of(self, part: StreamsGroupSubtopology) -> int:
        """Return the largest number of partitions of the topics that a subtopology reads."""
        counts = [self.of(topic) for topic in sources(part)]
        if not counts:
            raise invalid_topology(f"No source topics found for subtopology {part.subtopology_id}")
        return max(counts)

    def decide(self) -> None:
        """Decide all numbers; the external source topics exist. Raises STREAMS_INVALID_TOPOLOGY,
        IncorrectlyPartitionedError."""
        self.decided.update(self._repartition_counts())
        parts = self.topology.subtopologies.values()
        internal = {topic.name: topic.partitions for part in parts for topic in part.repartition_source_topics}
        fixed = [name for name, partitions in sorted(internal.items()) if partitions != 0]
        for part in parts:
            for group in copartition_groups(part):
                self._copartition(group, internal.keys(), fixed)
        for part in parts:
            count = self.tasks_of(part)
            self.decided.update((topic.name, count) for topic in part.state_changelog_topics)

    # ---- repartition topics ----------------------------------------------------------------------------------------------

    def _repartition_counts(self) -> dict[str, int]:
        parts = self.topology.subtopologies.values()
        topics = [topic for part in parts for topic in part.repartition_source_topics]
        counts = {topic.name: topic.partitions for topic in topics if topic.partitions != 0}
        while True:
            before, is_complete = len(counts), True
            for part in parts:
                undecided = [sink for sink in part.repartition_sink_topics if sink not in counts]
                count = self._largest_source(part, counts) if undecided else None
                if count is not None:
                    counts.update(dict.fromkeys(undecided, count))
                elif undecided:
                    is_complete = False
            if is_complete:
                break
            if len(counts) == before:
                raise invalid_topology(
                    "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
                    "that cannot be resolved."
                )
        if any(topic.name not in counts for topic in topics):
            raise invalid_topology(
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
                "never used as a sink topic."
            )
        return counts

    def _largest_source(self, part: StreamsGroupSubtopology, counts: Mapping[str, int]) -> int | None:
        known = [counts[topic.name] for topic in part.repartition_source_topics if topic.name in counts]
        known += [count for topic in part.source_topics if (count := self.find(topic)) is not None]
        return max(known, default=None)

    # ---- copartitioned topics --------------------------------------------------------------------------------------------

    def _copartition(self, group: Collection[str], internal: Collection[str], fixed: Collection[str]) -> None:
        """Let the repartition topics of a group have the number that its other topics have. `internal`: the topology's
        repartition topics; `fixed`: those that say their number."""
        if not group:
            return
        counts = {topic: self.of(topic) for topic in sorted(group)}
        repartition = {topic: count for topic, count in counts.items() if topic in internal}
        if len(repartition) < len(counts):
            wanted = _same({topic: count for topic, count in counts.items() if topic not in internal})
        elif fixed:
            wanted = _same({topic: self.of(topic) for topic in fixed}, repartition)
        else:
            wanted = max(repartition.values())
        for topic, count in repartition.items():
            self.decided[topic] = wanted
            if topic in fixed and count != wanted:
                raise IncorrectlyPartitionedError(
                    f"Number of partitions [{count}] of repartition topic [{topic}] doesn't match number of partitions "
                    f"[{wanted}] of the source topic."
                )


def _same(counts: Mapping[str, int], told: Mapping[str, int] | None = None) -> int:
    """Return the number that all of these have. `told`: the topics that the error names."""
    first, *others = counts.values()
    if any(count != first for count in others):
        shown = ", ".join(f"{topic}={count}" for topic, count in sorted((counts if told is None else told).items()))
        raise IncorrectlyPartitionedError(f"Following topics do not have the same number of partitions: [{{{shown}}}]")
    return first
