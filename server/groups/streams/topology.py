"""The topology of a Streams application: subtopologies, each with the topics that it reads, writes and keeps its state in
(KIP-1071; Kafka: StreamsTopology)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Self

import attrs

from ....protocol.coordinator.streams_group_records import (
    StreamsGroupSubtopology,
    StreamsGroupTopologyValue,
)
from ....protocol.errors import ErrorCode, RequestError

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
        raise invalid_topology(f"the topology has {len(value.subtopologies)} subtopologies, at most {MAX_SUBTOPOLOGIES} may be")
    names = [part.subtopology_id for part in value.subtopologies]
    if len(set(names)) < len(names):
        raise invalid_topology(f"two subtopologies have one id, of {', '.join(names[:10])}")
    if (count := sum(_topic_count(part) for part in value.subtopologies)) > MAX_TOPICS:
        raise invalid_topology(f"the topology names {count} topics, at most {MAX_TOPICS} may be")
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
