"""Saying where a link goes on: for topics that were made anew, a source that was restored, a record that is to be passed over.

The offset is committed as a link commits it, in a transaction upstream, so a forwarder that runs is fenced; then in the source.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.types import TopicPartition
from ..client.procedures.groups import CommittedOffset
from ..client.procedures.topics import AtOffset, Place, Shifted
from .errors import SettingsError
from .memory import GROUP
from .settings.link_settings import LinkSettings
from .settings.names import target_name
from .source.source import Source, SourceTopic
from .upstream.connection import BATCH_BYTES, UpstreamClients
from .upstream.producer import UpstreamProducer


def reset(
    settings: LinkSettings, node: str | None, source: Source, topic: str, partition: int | None, start: Place
) -> Mapping[TopicPartition, int]:
    """Reset the offsets of a topic's partitions, or of one, and return them. Raises SettingsError, TryAgainError."""
    node = node or source.node()
    group = GROUP.format(node=node, link=settings.name)
    described = source.topics([topic]).get(topic)
    if described is None:
        raise SettingsError(f"the source has no topic {topic}")
    wanted = sorted(described.partitions) if partition is None else [partition]
    offsets = _offsets(source, described, wanted, start)
    kept = {each: CommittedOffset(offset, described.topic_id) for each, offset in offsets.items()}
    clients = UpstreamClients(settings, group, lambda: True)
    if clients.is_exactly_once:
        target = target_name(settings.target, topic=topic, node=node, link=settings.name)
        _commit_upstream(clients, settings, {TopicPartition(target, each.partition): offset for each, offset in kept.items()})
    source.commit(group, kept)
    return offsets


def _offsets(source: Source, topic: SourceTopic, wanted: list[int], start: Place) -> dict[TopicPartition, int]:
    for number in wanted:
        if number not in topic.partitions:
            raise SettingsError(f"{topic.name} has no partition {number}")
    partitions = [TopicPartition(topic.name, number) for number in wanted]
    if isinstance(start, Shifted):
        offsets = {}
        for each in partitions:
            there = topic.partitions[each.partition]
            origin = there.end_offset if start.records < 0 else there.start_offset
            offsets[each] = min(max(origin + start.records, there.start_offset), there.end_offset)
        return offsets
    if not isinstance(start, AtOffset):
        return source.locate(partitions, start)
    for number in wanted:
        there = topic.partitions[number]
        if not there.start_offset <= start.offset <= there.end_offset:
            raise SettingsError(
                f"{topic.name}-{number} has offsets {there.start_offset} up to {there.end_offset} (exclusive), and not "
                f"{start.offset}"
            )
    return dict.fromkeys(partitions, start.offset)


def _commit_upstream(clients: UpstreamClients, settings: LinkSettings, kept: Mapping[TopicPartition, CommittedOffset]) -> None:
    consumer = clients.consumer()
    try:
        metadata = consumer.consumer_group_metadata()
    finally:
        consumer.close()
    producer = UpstreamProducer(clients, BATCH_BYTES, settings.transaction_timeout_ms)
    try:
        producer.introduce(metadata)
        producer.commit(kept)
    finally:
        producer.close()
