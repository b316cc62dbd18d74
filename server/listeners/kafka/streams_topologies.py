"""The topology of a Streams application as its members say it: checked, in the words of the server's records, and the internal
topics that it needs (KIP-1071; Kafka: KafkaApis, AutoTopicCreationManager).

Kafka makes these topics after it has answered, and says with a later heartbeat what has failed; here it is said at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ....protocol.coordinator import streams_group_records as records
from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages import streams_groups as messages
from ....protocol.kafka.messages.topics import CreateTopicsCreatableTopic, CreateTopicsCreatableTopicConfig
from ....protocol.limits import MAX_PARTITIONS_PER_REQUEST
from ...broker import InternalTopic, StreamsStatus, StreamsStatusCode, check_topic_name, is_internal
from ...loop.procedures import in_turns
from ..access.rules import note_change
from .audited import KAFKA
from .door import Call
from .topics import BY_DEFAULT, TOPICS_PER_TURN, create_topic

LOGGER: Final = logging.getLogger(__name__)
FAILURES_TOLD: Final = 3


def check_topics(call: Call, topology: messages.StreamsGroupHeartbeatTopology) -> None:
    """Raises RequestError: a topic is the server's own, has a name that none can have, or is none that the client may
    describe."""
    names = [name for part in topology.subtopologies for name in _names(part)]
    if prohibited := [name for name in names if is_internal(name)]:
        raise RequestError(
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited.",
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        )
    if invalid := [name for name in names if not _is_valid(name)]:
        raise RequestError(f"Topic names {','.join(invalid)} are not valid topic names.", ErrorCode.STREAMS_INVALID_TOPOLOGY)
    for name in dict.fromkeys(names):
        call.check_authorized(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _names(part: messages.StreamsGroupHeartbeatSubtopology) -> list[str]:
    internal = (*part.repartition_source_topics, *part.state_changelog_topics)
    return [*part.source_topics, *part.repartition_sink_topics, *(topic.name for topic in internal)]


def _is_valid(name: str) -> bool:
    try:
        check_topic_name(name)
    except RequestError:
        return False
    return True


def in_records_words(topology: messages.StreamsGroupHeartbeatTopology) -> records.StreamsGroupTopologyValue:
    """The same as it is stored."""
    return records.StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            records.StreamsGroupSubtopology(
                subtopology_id=part.subtopology_id,
                source_topics=part.source_topics,
                source_topic_regex=part.source_topic_regex,
                state_changelog_topics=_topics(part.state_changelog_topics),
                repartition_sink_topics=part.repartition_sink_topics,
                repartition_source_topics=_topics(part.repartition_source_topics),
                copartition_groups=[
                    records.StreamsGroupCopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=group.source_topic_regex,
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in part.copartition_groups
                ],
            )
            for part in topology.subtopologies
        ],
    )


def _topics(topics: Sequence[messages.StreamsGroupTopicInfo]) -> list[records.StreamsGroupTopicInfo]:
    return [
        records.StreamsGroupTopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[records.StreamsGroupKeyValue(key=each.key, value=each.value) for each in topic.topic_configs],
        )
        for topic in topics
    ]


# ---- internal topics ---------------------------------------------------------------------------------------------------------


async def with_topics_made(
    call: Call, topics: Sequence[InternalTopic], statuses: Sequence[StreamsStatus]
) -> list[StreamsStatus]:
    """Make the topics that are missing, if the client may make them all; the statuses say what could not be done."""
    detail = await _make(call, topics) if topics else ""
    return [
        status._replace(detail=status.detail + detail) if status.code is StreamsStatusCode.MISSING_INTERNAL_TOPICS else status
        for status in statuses
    ]


async def _make(call: Call, topics: Sequence[InternalTopic]) -> str:
    """Answers what there is to say of it, empty for nothing."""
    if refused := _refused(call, topics):
        return f"; Unauthorized to CREATE on topics {', '.join(refused)}."
    failed: list[str] = []
    if (total := sum(topic.partitions for topic in topics)) > MAX_PARTITIONS_PER_REQUEST:
        failed.append(f"{topics[0].name} (all have {total} partitions, {MAX_PARTITIONS_PER_REQUEST} may be made at once)")
    async for topic in in_turns(() if failed else topics, TOPICS_PER_TURN):
        try:
            await create_topic(call, _creatable(topic))
            note_change(call.broker.security.audit, call, KAFKA, "StreamsGroupHeartbeat", [topic.name], [])
        except RequestError as exc:
            if exc.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                LOGGER.warning("the internal topic %s could not be made: %s", topic.name, exc)
                failed.append(f"{topic.name} ({exc.message})")
                note_change(call.broker.security.audit, call, KAFKA, "StreamsGroupHeartbeat", [topic.name], [exc.code])
    if not failed:
        return ""
    others = len(failed) - FAILURES_TOLD
    return f"; Creation failed: {', '.join(failed[:FAILURES_TOLD])}{f' and {others} more' if others > 0 else ''}."


def _refused(call: Call, topics: Sequence[InternalTopic]) -> list[str]:
    if call.authorize(AclOperation.CREATE, ResourceType.CLUSTER, quietly=True):
        return []
    return [topic.name for topic in topics if not call.authorize(AclOperation.CREATE, ResourceType.TOPIC, topic.name)]


def _creatable(topic: InternalTopic) -> CreateTopicsCreatableTopic:
    return CreateTopicsCreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or BY_DEFAULT,
        assignments=[],
        configs=[CreateTopicsCreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
    )
