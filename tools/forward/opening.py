"""The beginning of a session: select topics, check them upstream, find the next offset of each partition. In this order:

1. the source's topics, and those upstream, made where they are missing;
2. the producer is introduced: an earlier forwarder is fenced, and its last transaction has an end;
3. only then is the upstream's group asked how far it is, and compared with the source.

`reset` sets where a link continues: for topics that were created again, a source that was restored, a record to be skipped. The
offset is committed as a link commits it, in a transaction upstream, so a running forwarder is fenced; then in the source.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from ...protocol.types import LATEST_TIMESTAMP, TopicPartition
from ..client.procedures.groups import CommittedOffset
from ..client.procedures.topics import AtOffset, Place, Shifted
from .errors import NO_SUCH_TOPIC, SettingsError, TopicStoppedError, TryAgainError
from .memory import GROUP, LinkMemory
from .settings.link_settings import LinkSettings, ranks, target_name, wanted_topics
from .source.source import OffsetRange, Source, SourceTopic
from .upstream.connection import BATCH_BYTES, UpstreamClients, words
from .upstream.producer import UpstreamProducer
from .upstream.resume import Mark, Resumed, check_last, check_topic, resume
from .upstream.topics import UpstreamTopics

if TYPE_CHECKING:
    from confluent_kafka import Consumer

LOGGER: Final = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Opened:
    """The producer, topics and offsets that a session begins with."""

    producer: UpstreamProducer
    topics: Mapping[str, SourceTopic]
    targets: Mapping[str, str]
    offsets: Mapping[TopicPartition, int]
    marks: Mapping[TopicPartition, Mark]
    """Of partitions that have sent something."""


def open_upstream(memory: LinkMemory, clients: UpstreamClients) -> Opened:
    """Raises TryAgainError, LinkStoppedError. Topics that cannot go on are in `memory.troubles`."""
    topics = _source_topics(memory)
    consumer = clients.consumer()
    try:
        group_metadata = consumer.consumer_group_metadata()
        upstream_topics = UpstreamTopics(clients, consumer, memory.settings.create_config)
        targets = _targets(memory, upstream_topics, topics.values())
        _check_dead_letter_topic(memory, upstream_topics)
        largest = upstream_topics.batch_bytes(sorted(set(targets.values())))
        producer = UpstreamProducer(clients, min(largest, memory.batch_bytes), memory.settings.transaction_timeout_ms)
        try:
            producer.introduce(group_metadata)
            resumed = _resume(memory, clients, consumer, [topics[name] for name in targets], targets)
        except BaseException:
            producer.close()
            raise
    finally:
        consumer.close()
    going_on = {name: target for name, target in targets.items() if not memory.troubles.blocks(name, time.monotonic())}
    for name in going_on:
        memory.troubles.gone(name)
    memory.publish_troubles()
    offsets = {partition: each.offset for partition, each in resumed.items() if partition.topic in going_on}
    for partition, offset in offsets.items():
        there = topics[partition.topic].partitions[partition.partition]
        memory.progress.begins(partition, targets[partition.topic], offset, there, resumed[partition].avoided)
    memory.source.read(offsets, ranks(memory.settings.priority, going_on))
    marks = {partition: mark for partition in offsets if (mark := resumed[partition].mark) is not None}
    return Opened(
        producer=producer,
        topics={name: topics[name] for name in going_on},
        targets=going_on,
        offsets=offsets,
        marks=marks,
    )


def trouble(memory: LinkMemory, topic: str, message: str) -> None:
    """A topic cannot go on."""
    if memory.troubles.add(topic, message, time.monotonic()):
        LOGGER.error("link %s: topic %s stopped: %s", memory.settings.name, topic, message)
    memory.publish_troubles()


def _source_topics(memory: LinkMemory) -> dict[str, SourceTopic]:
    """Those that are meant and not to be left alone."""
    settings = memory.settings
    there = memory.source.topics()
    found = wanted_topics(settings.topics, settings.topic_pattern, there)
    for name in set(memory.troubles.messages) - set(found):
        memory.troubles.gone(name)
    for name in sorted(set(settings.topics) - set(found)):
        if memory.troubles.add(name, NO_SUCH_TOPIC, time.monotonic()):
            LOGGER.warning("link %s: waiting for topic %s: %s", settings.name, name, NO_SUCH_TOPIC)
            memory.publish_troubles()
    now_s = time.monotonic()
    return {name: there[name] for name in found if not memory.troubles.blocks(name, now_s)}


def _check_dead_letter_topic(memory: LinkMemory, upstream_topics: UpstreamTopics) -> None:
    """It is there before it is needed."""
    name = memory.settings.dead_letter_topic
    if name is not None:
        topic = SourceTopic(name=name, topic_id="", config={}, partitions={0: OffsetRange(0, 0, 0)})
        try:
            upstream_topics.check(topic, name, creates=memory.settings.create_topics)
        except TopicStoppedError as exc:
            raise TryAgainError(f"dead_letter_topic: {exc.message}") from exc


def _targets(memory: LinkMemory, upstream_topics: UpstreamTopics, topics: Iterable[SourceTopic]) -> dict[str, str]:
    """Return the upstream name of each topic that can be sent there."""
    settings = memory.settings
    targets = {}
    for topic in topics:
        target = target_name(settings.target, topic=topic.name, node=memory.node, link=settings.name)
        owner = memory.claims.claim(settings.to, target, settings.name, topic.name)
        try:
            if owner is not None:
                raise TopicStoppedError(topic.name, f"{owner} also goes to {target} at {settings.to}. Change `target` of one")
            upstream_topics.check(topic, target, creates=settings.create_topics)
        except TopicStoppedError as exc:
            trouble(memory, topic.name, exc.message)
        else:
            targets[topic.name] = target
    return targets


def _resume(
    memory: LinkMemory, clients: UpstreamClients, consumer: Consumer, topics: list[SourceTopic], targets: Mapping[str, str]
) -> dict[TopicPartition, Resumed]:
    partitions = [TopicPartition(topic.name, number) for topic in topics for number in sorted(topic.partitions)]
    upstream = {}
    if memory.is_exactly_once:
        upstream = _committed_upstream(
            clients, consumer, {part: TopicPartition(targets[part[0]], part[1]) for part in partitions}
        )
    local = memory.source.committed(memory.group, partitions)
    now = memory.source.topics(topic.name for topic in topics)  # not as it was before another forwarder was fenced
    new = [partition for partition in partitions if partition not in upstream and partition not in local]
    starts = memory.source.locate(new, memory.settings.start)
    found = {}
    for topic in topics:
        try:
            described = now.get(topic.name, topic)
            if described.topic_id != topic.topic_id:
                raise TopicStoppedError(topic.name, "it is being deleted and created again")
            check_topic(topic.name, topic.topic_id, memory.topic_ids.known(topic.name), _noted_ids(topic, upstream, local))
            for number, there in described.partitions.items():
                if number not in topic.partitions:
                    continue
                part = TopicPartition(topic.name, number)
                each = resume(part, topic.topic_id, there, upstream.get(part), local.get(part), starts.get(part, 0))
                if each.note is not None and memory.begun.get(part) is None:
                    LOGGER.warning("link %s: %s", memory.settings.name, each.note)
                found[part] = each
        except TopicStoppedError as exc:
            trouble(memory, topic.name, exc.message)
        else:
            if memory.settings.start.timestamp == LATEST_TIMESTAMP or memory.topic_ids.known(topic.name) is not None:
                memory.topic_ids.note({topic.name: topic.topic_id})
    _check_last(memory, found)
    return found


def _noted_ids(topic: SourceTopic, *noted: Mapping[TopicPartition, CommittedOffset]) -> set[str]:
    """The ids that stand beside offsets of a topic."""
    partitions = [TopicPartition(topic.name, number) for number in topic.partitions]
    marks = [Mark.parse(each[part].metadata) for each in noted for part in partitions if part in each]
    return {mark.topic_id for mark in marks if mark is not None}


def _check_last(memory: LinkMemory, resumed: Mapping[TopicPartition, Resumed]) -> None:
    """Stop topics whose source has another record in place of the last forwarded one, if it has one there."""
    marks = {partition: each.mark for partition, each in resumed.items() if each.mark is not None}
    found = memory.source.timestamps({partition: mark.last_offset for partition, mark in marks.items() if mark.timestamp >= 0})
    for partition, timestamp in found.items():
        try:
            check_last(partition, marks[partition], timestamp)
        except TopicStoppedError as exc:
            trouble(memory, partition.topic, exc.message)


def _committed_upstream(
    clients: UpstreamClients, consumer: Consumer, targets: Mapping[TopicPartition, TopicPartition]
) -> dict[TopicPartition, CommittedOffset]:
    from confluent_kafka import TopicPartition as Place

    if not targets:
        return {}
    places = [Place(*target) for target in targets.values()]
    answers = clients.patiently(
        lambda timeout_s: consumer.committed(places, timeout=timeout_s), lambda: consumer.poll(0), "no committed offsets"
    )
    for answer in answers:
        if answer.error is not None:
            raise TryAgainError(f"committed offsets of group {clients.group} at {clients.to}: {words(answer.error)}")
    sources = {target: partition for partition, target in targets.items()}
    return {
        sources[TopicPartition(answer.topic, answer.partition)]: CommittedOffset(answer.offset, answer.metadata)
        for answer in answers
        if answer.offset >= 0
    }


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
                f"{topic.name}-{number} has offsets {there.start_offset} up to {there.end_offset} (exclusive), and "
                f"not {start.offset}"
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
