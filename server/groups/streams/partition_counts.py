"""The partition counts of the internal topics of a Streams application (KIP-1071; Kafka: RepartitionTopics,
CopartitionedTopicsEnforcer, ChangelogTopics).

A repartition topic without a number has as many partitions as the largest topic that the writing subtopology reads;
copartitioned topics have one number; a changelog has as many as the largest topic of its subtopology. An existing topic counts
as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import attrs

from ....protocol.coordinator.streams_group_records import StreamsGroupSubtopology
from .topology import Topology, copartition_groups, invalid_topology, sources

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
