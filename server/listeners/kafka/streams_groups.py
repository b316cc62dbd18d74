"""Members of groups of Kafka Streams applications (KIP-1071): StreamsGroupHeartbeat. What it means is in
`server.groups.streams`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from ....protocol.errors import RequestError
from ....protocol.kafka.messages.streams_groups import (
    StreamsGroupEndpoint,
    StreamsGroupEndpointToPartitions,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupStatus,
    StreamsGroupTaskIds,
    StreamsGroupTopicPartitions,
)
from ...broker import (
    Endpoint,
    EndpointPartitions,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
    StreamsStatus,
    TaskIds,
    by_first,
    task_ids,
)
from ...loop.procedures import Procedure
from .door import Call
from .streams_topologies import check_topics, in_records_words, with_topics_made


def streams_group_heartbeat(call: Call, body: StreamsGroupHeartbeatRequest) -> Procedure[StreamsGroupHeartbeatResponse]:
    """Join, stay, or leave; the answer has the tasks that the member is to run from now on, if they have changed, and what is
    wrong with the application's topics. Internal topics that are missing are made."""
    groups, heartbeat = call.broker.groups, _heartbeat(call, body)
    try:
        is_silent = body.topology is None and body.active_tasks is None
        if is_silent and (answer := groups.streams.heartbeat_now(heartbeat)) is not None:
            return _told(answer, answer.statuses)
        if body.topology is not None:
            check_topics(call, body.topology)
        answer = yield partial(groups.streams_heartbeat, heartbeat)
        statuses = yield partial(with_topics_made, call, answer.missing_topics, answer.statuses)
    except RequestError as exc:
        return StreamsGroupHeartbeatResponse(
            error_code=exc.code,
            error_message=exc.message,
            member_id="",
            member_epoch=0,
            heartbeat_interval_ms=0,
            acceptable_recovery_lag=0,
            task_offset_interval_ms=0,
            status=[],
            endpoint_information_epoch=0,
        )
    return _told(answer, statuses)


def _heartbeat(call: Call, body: StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
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


def _owned(parts: Iterable[StreamsGroupTaskIds] | None) -> TaskIds | None:
    return None if parts is None else task_ids((part.subtopology_id, part.partitions) for part in parts)


def _told(answer: StreamsHeartbeatAnswer, statuses: Iterable[StreamsStatus]) -> StreamsGroupHeartbeatResponse:
    tasks, endpoints = answer.assignment, answer.endpoints
    return StreamsGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=[StreamsGroupStatus(status_code=status.code, status_detail=status.detail) for status in statuses],
        active_tasks=None if tasks is None else in_answers_words(tasks.active),
        standby_tasks=None if tasks is None else in_answers_words(tasks.standby),
        warmup_tasks=None if tasks is None else in_answers_words(tasks.warmup),
        endpoint_information_epoch=answer.endpoint_epoch,
        partitions_by_user_endpoint=None if endpoints is None else [_endpoint(each) for each in endpoints],
    )


def in_answers_words(tasks: TaskIds) -> list[StreamsGroupTaskIds]:
    return [StreamsGroupTaskIds(subtopology_id=part, partitions=numbers) for part, numbers in by_first(tasks).items()]


def _endpoint(each: EndpointPartitions) -> StreamsGroupEndpointToPartitions:
    return StreamsGroupEndpointToPartitions(
        user_endpoint=StreamsGroupEndpoint(host=each.endpoint.host, port=each.endpoint.port),
        active_partitions=_partitions(each.active),
        standby_partitions=_partitions(each.standby),
    )


def _partitions(topics: Sequence[tuple[str, tuple[int, ...]]]) -> list[StreamsGroupTopicPartitions]:
    return [StreamsGroupTopicPartitions(topic=topic, partitions=list(numbers)) for topic, numbers in topics]
