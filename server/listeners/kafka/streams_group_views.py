"""The administrators' view of groups of Kafka Streams applications (KIP-1071): StreamsGroupDescribe."""

from __future__ import annotations

from collections.abc import Sequence

from ....protocol.kafka.messages.streams_groups import (
    StreamsGroupDescribeAssignment,
    StreamsGroupDescribedGroup,
    StreamsGroupDescribeMember,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupDescribeSubtopology,
    StreamsGroupDescribeTopology,
    StreamsGroupEndpoint,
    StreamsGroupKeyValue,
    StreamsGroupTopicInfo,
)
from ...broker import InternalTopic, StreamsGroupDescription, StreamsMemberDescription, SubtopologyDescription, Tasks
from .described_groups import described_groups
from .door import Call
from .streams_groups import in_answers_words


async def streams_group_describe(call: Call, body: StreamsGroupDescribeRequest) -> StreamsGroupDescribeResponse:
    """State, epochs, topology, members and their current and target tasks."""
    describe = call.broker.groups.streams.describe
    return StreamsGroupDescribeResponse(groups=await described_groups(call, body, describe, _shown, StreamsGroupDescribedGroup))


def _shown(_call: Call, description: StreamsGroupDescription) -> StreamsGroupDescribedGroup:
    return StreamsGroupDescribedGroup(
        group_id=description.group_id,
        group_state=description.state.value,
        group_epoch=description.group_epoch,
        assignment_epoch=description.assignment_epoch,
        topology=StreamsGroupDescribeTopology(
            epoch=description.topology_epoch, subtopologies=[_subtopology(each) for each in description.subtopologies]
        ),
        members=[_member(each) for each in description.members],
    )


def _subtopology(part: SubtopologyDescription) -> StreamsGroupDescribeSubtopology:
    return StreamsGroupDescribeSubtopology(
        subtopology_id=part.subtopology_id,
        source_topics=list(part.source_topics),
        repartition_sink_topics=list(part.repartition_sink_topics),
        state_changelog_topics=_topics(part.state_changelog_topics),
        repartition_source_topics=_topics(part.repartition_source_topics),
    )


def _topics(topics: Sequence[InternalTopic]) -> list[StreamsGroupTopicInfo]:
    return [
        StreamsGroupTopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=_pairs(topic.configs),
        )
        for topic in topics
    ]


def _pairs(pairs: Sequence[tuple[str, str]]) -> list[StreamsGroupKeyValue]:
    return [StreamsGroupKeyValue(key=key, value=value) for key, value in pairs]


def _member(member: StreamsMemberDescription) -> StreamsGroupDescribeMember:
    endpoint = member.endpoint
    return StreamsGroupDescribeMember(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else StreamsGroupEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=_pairs(member.client_tags),
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target_assignment),
        is_classic=False,
    )


def _assignment(tasks: Tasks) -> StreamsGroupDescribeAssignment:
    return StreamsGroupDescribeAssignment(
        active_tasks=in_answers_words(tasks.active),
        standby_tasks=in_answers_words(tasks.standby),
        warmup_tasks=in_answers_words(tasks.warmup),
    )
