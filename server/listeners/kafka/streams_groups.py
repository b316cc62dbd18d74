"""Groups of Kafka Streams applications (KIP-1071): StreamsGroupHeartbeat and StreamsGroupDescribe. What they mean is in
`server.groups.streams`.

The topology of a Streams application as its members say it: checked, in the words of the server's records, and the internal
topics that it needs (KIP-1071; Kafka: KafkaApis, AutoTopicCreationManager).

Kafka makes these topics after it has answered, and says with a later heartbeat what has failed; here it is said at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from ....protocol.coordinator import streams_group_records as records
from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages import streams_groups as messages
from ....protocol.kafka.messages.topics import CreateTopicsCreatableTopic, CreateTopicsCreatableTopicConfig
from ....protocol.limits import MAX_PARTITIONS_PER_REQUEST
from ...broker import (
    Endpoint,
    EndpointPartitions,
    InternalTopic,
    StreamsGroupDescription,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
    StreamsMemberDescription,
    StreamsStatus,
    StreamsStatusCode,
    SubtopologyDescription,
    TaskIds,
    Tasks,
    by_first,
    check_topic_name,
    is_internal,
    task_ids,
)
from ...loop.procedures import Procedure, in_turns
from ..access.rules import note_change
from .audited import KAFKA
from .consumer_groups import described_groups
from .door import Call, filled
from .topics import BY_DEFAULT, TOPICS_PER_TURN, create_topic


def streams_group_heartbeat(
    call: Call, body: messages.StreamsGroupHeartbeatRequest
) -> Procedure[messages.StreamsGroupHeartbeatResponse]:
    """Join, stay, or leave; the answer has the tasks that the member is to run from now on, if they have changed, and what is
    wrong with the application's topics. Internal topics that are missing are made."""
    groups, heartbeat = call.broker.groups, _heartbeat(call, body)
    is_silent = body.topology is None and body.active_tasks is None
    if is_silent and (answer := groups.streams.try_heartbeat(heartbeat)) is not None:
        return _told(answer, answer.statuses)
    if body.topology is not None:
        check_topics(call, body.topology)
    answer = yield partial(groups.streams.heartbeat, heartbeat)
    statuses = yield partial(with_topics_made, call, answer.missing_topics, answer.statuses)
    return _told(answer, statuses)


def _heartbeat(call: Call, body: messages.StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    endpoint, tags = body.user_endpoint, body.client_tags
    return StreamsHeartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        endpoint_epoch=body.endpoint_information_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        topology=None if body.topology is None else in_records_words(body.topology),
        active=_owned(body.active_tasks),
        standby=_owned(body.standby_tasks),
        warmup=_owned(body.warmup_tasks),
        process_id=body.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else {tag.key: tag.value for tag in tags},
        has_task_offsets=body.task_offsets is not None,
        has_task_end_offsets=body.task_end_offsets is not None,
        shutdown_application=body.shutdown_application,
        client_id=call.session.client_id,
        client_host=f"/{call.session.transport.host}",
    )


def _owned(parts: Iterable[messages.StreamsGroupTaskIds] | None) -> TaskIds | None:
    return None if parts is None else task_ids((part.subtopology_id, part.partitions) for part in parts)


def _told(answer: StreamsHeartbeatAnswer, statuses: Iterable[StreamsStatus]) -> messages.StreamsGroupHeartbeatResponse:
    tasks, endpoints = answer.assignment, answer.endpoints
    return messages.StreamsGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=[messages.StreamsGroupStatus(status_code=status.code, status_detail=status.detail) for status in statuses],
        active_tasks=None if tasks is None else in_answers_words(tasks.active),
        standby_tasks=None if tasks is None else in_answers_words(tasks.standby),
        warmup_tasks=None if tasks is None else in_answers_words(tasks.warmup),
        endpoint_information_epoch=answer.endpoint_epoch,
        partitions_by_user_endpoint=None if endpoints is None else [_endpoint(each) for each in endpoints],
    )


def in_answers_words(tasks: TaskIds) -> list[messages.StreamsGroupTaskIds]:
    return [messages.StreamsGroupTaskIds(subtopology_id=part, partitions=numbers) for part, numbers in by_first(tasks).items()]


def _endpoint(each: EndpointPartitions) -> messages.StreamsGroupEndpointToPartitions:
    return messages.StreamsGroupEndpointToPartitions(
        user_endpoint=messages.StreamsGroupEndpoint(host=each.endpoint.host, port=each.endpoint.port),
        active_partitions=_partitions(each.active),
        standby_partitions=_partitions(each.standby),
    )


def _partitions(topics: Sequence[tuple[str, tuple[int, ...]]]) -> list[messages.StreamsGroupTopicPartitions]:
    return [messages.StreamsGroupTopicPartitions(topic=topic, partitions=list(numbers)) for topic, numbers in topics]


async def streams_group_describe(
    call: Call, body: messages.StreamsGroupDescribeRequest
) -> messages.StreamsGroupDescribeResponse:
    """State, epochs, topology, members and their current and target tasks."""
    describe = call.broker.groups.streams.describe
    return messages.StreamsGroupDescribeResponse(
        groups=await described_groups(call, body, describe, _shown, messages.StreamsGroupDescribedGroup)
    )


def _shown(_call: Call, description: StreamsGroupDescription) -> messages.StreamsGroupDescribedGroup:
    return filled(
        messages.StreamsGroupDescribedGroup,
        description,
        group_state=description.state.value,
        topology=messages.StreamsGroupDescribeTopology(
            epoch=description.topology_epoch, subtopologies=[_subtopology(each) for each in description.subtopologies]
        ),
        members=[_member(each) for each in description.members],
    )


def _subtopology(part: SubtopologyDescription) -> messages.StreamsGroupDescribeSubtopology:
    return messages.StreamsGroupDescribeSubtopology(
        subtopology_id=part.subtopology_id,
        source_topics=list(part.source_topics),
        repartition_sink_topics=list(part.repartition_sink_topics),
        state_changelog_topics=_topics(part.state_changelog_topics),
        repartition_source_topics=_topics(part.repartition_source_topics),
    )


def _topics(topics: Sequence[InternalTopic]) -> list[messages.StreamsGroupTopicInfo]:
    return [filled(messages.StreamsGroupTopicInfo, topic, topic_configs=_pairs(topic.configs)) for topic in topics]


def _pairs(pairs: Sequence[tuple[str, str]]) -> list[messages.StreamsGroupKeyValue]:
    return [messages.StreamsGroupKeyValue(key=key, value=value) for key, value in pairs]


def _member(member: StreamsMemberDescription) -> messages.StreamsGroupDescribeMember:
    endpoint = member.endpoint
    return filled(
        messages.StreamsGroupDescribeMember,
        member,
        user_endpoint=None if endpoint is None else messages.StreamsGroupEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=_pairs(member.client_tags),
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target_assignment),
        is_classic=False,
    )


def _assignment(tasks: Tasks) -> messages.StreamsGroupDescribeAssignment:
    return messages.StreamsGroupDescribeAssignment(
        active_tasks=in_answers_words(tasks.active),
        standby_tasks=in_answers_words(tasks.standby),
        warmup_tasks=in_answers_words(tasks.warmup),
    )


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
                state_changelog_topics=_made_topics(part.state_changelog_topics),
                repartition_sink_topics=part.repartition_sink_topics,
                repartition_source_topics=_made_topics(part.repartition_source_topics),
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


def _made_topics(topics: Sequence[messages.StreamsGroupTopicInfo]) -> list[records.StreamsGroupTopicInfo]:
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
        failed.append(f"{topics[0].name} (all have {total} partitions, a request may create {MAX_PARTITIONS_PER_REQUEST})")
    async for topic in in_turns(() if failed else topics, TOPICS_PER_TURN):
        try:
            await create_topic(call, _creatable(topic))
            note_change(call.broker.security.audit, call, KAFKA, "StreamsGroupHeartbeat", [topic.name], [])
        except RequestError as exc:
            if exc.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                LOGGER.warning("cannot create internal topic %s: %s", topic.name, exc)
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
