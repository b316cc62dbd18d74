"""Which partitions an endpoint of a Streams application has the state of (Kafka: EndpointToPartitionsManager)."""

from __future__ import annotations

from ..consumer_values import TopicImage
from .configured import ConfiguredTopology
from .member import StreamsMember
from .tasks import TaskIds, by_subtopology
from .values import EndpointPartitions


def endpoint_partitions(
    member: StreamsMember, configured: ConfiguredTopology | None, topics: TopicImage
) -> EndpointPartitions | None:
    """None for a member without an endpoint."""
    if member.endpoint is None:
        return None
    active = _read_by(frozenset(member.assigned.active), configured, topics)
    return EndpointPartitions(member.endpoint, active, _read_by(member.assigned.standby, configured, topics))


def _read_by(
    tasks: TaskIds, configured: ConfiguredTopology | None, topics: TopicImage
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Partitions of the topics that tasks read. A topic with fewer partitions than there are tasks here has the first ones, as
    in Kafka."""
    parts = (None if configured is None else configured.subtopologies) or {}
    found = []
    for subtopology_id, numbers in by_subtopology(tasks):
        part = parts.get(subtopology_id)
        names = () if part is None else {*part.source_topics, *(each.name for each in part.repartition_source_topics)}
        for name in sorted(names):
            topic = topics.find(name)
            if topic is not None:
                found.append((name, tuple(numbers[: topic.partitions])))
    return tuple(found)
