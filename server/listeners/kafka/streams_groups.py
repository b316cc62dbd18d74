"""Groups of Kafka Streams applications (KIP-1071): StreamsGroupHeartbeat and StreamsGroupDescribe. What they mean is in
`server.groups.streams`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from ....protocol.kafka.messages import streams_groups as messages
from ...broker import (
    Endpoint,
    EndpointPartitions,
    InternalTopic,
    StreamsGroupDescription,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
    StreamsMemberDescription,
    StreamsStatus,
    SubtopologyDescription,
    TaskIds,
    Tasks,
    by_first,
    task_ids,
)
from ...loop.procedures import Procedure
from .consumer_groups import described_groups
from .door import Call
from .streams_topologies import check_topics, in_records_words, with_topics_made


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
    answer = yield partial(groups.streams_heartbeat, heartbeat)
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
    return messages.StreamsGroupDescribedGroup(
        group_id=description.group_id,
        group_state=description.state.value,
        group_epoch=description.group_epoch,
        assignment_epoch=description.assignment_epoch,
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
    return [
        messages.StreamsGroupTopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=_pairs(topic.configs),
        )
        for topic in topics
    ]


def _pairs(pairs: Sequence[tuple[str, str]]) -> list[messages.StreamsGroupKeyValue]:
    return [messages.StreamsGroupKeyValue(key=key, value=value) for key, value in pairs]


def _member(member: StreamsMemberDescription) -> messages.StreamsGroupDescribeMember:
    endpoint = member.endpoint
    return messages.StreamsGroupDescribeMember(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
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
