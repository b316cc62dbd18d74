"""The native calls on topics, on logs (lookups of offsets, gaps, and readers that share a log or read its files), and of
exactly-once writers: values in, values out. Each topic or partition of a request succeeds or fails alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import trio

from ....protocol.errors import InvalidRequestError, RequestError, UnknownTopicOrPartitionError
from ....protocol.limits import MAX_SPLIT_POINTS
from ....protocol.native import messages
from ....protocol.types import TopicPartition
from ...broker import (
    Broker,
    LeasedPartition,
    ListedGap,
    PartitionDescription,
    Question,
    StagedBytes,
    StagedShare,
    StageWrite,
    TimestampAndOffset,
)
from ...loop.procedures import PAUSE, Procedure, in_turns, mapped

EXPLAINED_PER_TURN: Final = 4


def offsets_for_times(broker: Broker, message: messages.OffsetsForTimesRequest) -> Procedure[messages.OffsetsForTimesResponse]:
    questions = [(each.topic_partition, each.timestamp) for each in message.partitions]
    answers = yield from broker.reader.offsets_for_times(questions, message.isolation)
    return messages.OffsetsForTimesResponse(tuple((yield from mapped(_answer, zip(questions, answers, strict=True)))))


def _answer(pair: tuple[Question, TimestampAndOffset | RequestError]) -> messages.OffsetsForTimesPartitionResponse:
    question, answer = pair
    if isinstance(answer, RequestError):
        return messages.OffsetsForTimesPartitionResponse(*question[0], answer)
    return messages.OffsetsForTimesPartitionResponse(*question[0], None, answer.offset, answer.timestamp, answer.leader_epoch)


async def explain(broker: Broker, message: messages.ExplainRequest) -> messages.ExplainResponse:
    explained = []
    async for each in in_turns(message.partitions, EXPLAINED_PER_TURN):
        try:
            if each.end_timestamp is not None and each.start_timestamp is None:
                raise InvalidRequestError(f"{each.topic_partition}: end_timestamp without start_timestamp, which may be 0")
            walk = await broker.reader.explain(
                each.topic_partition,
                offset=each.offset,
                timestamp=each.timestamp,
                times=each.times,
                and_segments=message.with_segments,
            )
        except RequestError as exc:
            explained.append(messages.ExplainPartitionResponse(*each.topic_partition, exc.as_answer()))
        else:
            explained.append(messages.ExplainPartitionResponse(*each.topic_partition, None, walk))
    return messages.ExplainResponse(tuple(explained))


async def list_gaps(broker: Broker, message: messages.ListGapsRequest) -> messages.ListGapsResponse:
    if message.topics is not None:
        return messages.ListGapsResponse(tuple([await _topic(broker, name) async for name in in_turns(message.topics)]))
    found = [await _topic(broker, name) async for name in in_turns(list(broker.topics.names()))]
    return messages.ListGapsResponse(tuple([topic for topic in found if topic.partitions]))


async def _topic(broker: Broker, name: str) -> messages.TopicGaps:
    """Describe the gaps of a topic. A topic deleted meanwhile has an error and no partitions."""
    try:
        partitions = await broker.gaps.of(name)
    except RequestError as exc:
        return messages.TopicGaps(name, exc.as_answer())
    return messages.TopicGaps(
        name,
        None,
        tuple(
            messages.PartitionGaps(each.topic_partition.partition, each.error, tuple(map(_gap, each.gaps)))
            for each in partitions
        ),
    )


def _gap(listed: ListedGap) -> messages.Gap:
    gap, size_bytes = listed.gap, listed.size_bytes
    return messages.Gap(
        gap.start_offset,
        gap.end_offset,
        gap.side_file,
        -1 if size_bytes is None else size_bytes,
        gap.found_ms,
        gap.accepted_ms,
    )


async def accept_gaps(broker: Broker, message: messages.AcceptGapsRequest) -> messages.AcceptGapsResponse:
    answers = []
    for each in message.partitions:
        try:
            gap = await broker.gaps.accept(each.topic_partition, each.start_offset)
        except RequestError as exc:
            answers.append(messages.AcceptGapsPartitionResponse(*each.topic_partition, exc.as_answer()))
        else:
            answers.append(messages.AcceptGapsPartitionResponse(*each.topic_partition, None, gap.end_offset))
    return messages.AcceptGapsResponse(tuple(answers))


async def split_points(broker: Broker, message: messages.SplitPointsRequest) -> messages.SplitPointsResponse:
    max_points = max(1, MAX_SPLIT_POINTS // max(1, len(message.partitions)))
    answers = []
    for each in message.partitions:
        try:
            points = await broker.reader.split_points(
                each.topic_partition, each.start, each.end, each.target_bytes, max_points=max_points
            )
        except RequestError as exc:
            answers.append(messages.SplitPointsPartitionResponse(*each.topic_partition, exc.as_answer()))
        else:
            found = tuple(messages.SplitPoint(*point) for point in points)
            answers.append(messages.SplitPointsPartitionResponse(*each.topic_partition, None, found))
        await trio.lowlevel.checkpoint()
    return messages.SplitPointsResponse(tuple(answers))


async def lease_segments(broker: Broker, message: messages.LeaseSegmentsRequest) -> messages.LeaseSegmentsResponse:
    asked = [each.topic_partition for each in message.partitions]
    if message.lease_id is None:
        lease = await broker.leases.take(asked, message.lease_ms)
    else:
        lease = await broker.leases.renew(message.lease_id, message.lease_ms)
    answers = []
    for topic_partition in asked:
        found = lease.partitions.get(topic_partition)
        if isinstance(found, LeasedPartition):
            answers.append(_leased(found))
        else:
            error = found or InvalidRequestError(f"{topic_partition} is not part of lease {lease.lease_id}. Take another one")
            answers.append(messages.LeasePartitionResponse(*topic_partition, error.as_answer()))
    return messages.LeaseSegmentsResponse(lease.lease_id, tuple(answers))


def _leased(found: LeasedPartition) -> messages.LeasePartitionResponse:
    directory = str(Path(found.directory).absolute())
    return messages.LeasePartitionResponse(
        *found.topic_partition,
        None,
        directory,
        found.log_start_offset,
        found.high_watermark,
        found.last_stable_offset,
        tuple(messages.LeasedSegment(each.base_offset, f"{directory}/{each.name}", each.size_bytes) for each in found.segments),
    )


TOPICS_PER_TURN: Final = 4
"""Whose whole configuration is described before other tasks run."""
PARTITIONS_PER_TURN: Final = 64
"""Of an answer, that are described before other tasks run."""
PARTITIONS_PER_TOPIC: Final = 16
"""A topic costs as much as so many of them."""


def metadata(broker: Broker, message: messages.MetadataRequest) -> Procedure[messages.MetadataResponse]:
    """Of all topics those that are there in the end."""
    described, left = [], PARTITIONS_PER_TURN
    for name in broker.topics.names() if message.topics is None else message.topics:
        if left <= 0:
            left = PARTITIONS_PER_TURN
            yield PAUSE
        left -= PARTITIONS_PER_TOPIC
        try:
            count = broker.topics.partition_count(name)
            left -= count
            is_small = count <= PARTITIONS_PER_TURN
            topic = broker.topics.describe(name) if is_small else (yield partial(broker.topics.describe_in_turns, name))
        except RequestError as exc:
            if message.topics is not None:
                described.append(messages.TopicMetadata(name, exc.as_answer()))
        else:
            partitions = tuple((yield from mapped(_partition, topic.partitions, PARTITIONS_PER_TURN)))
            described.append(messages.TopicMetadata(topic.name, None, topic.topic_id, topic.config, partitions))
    return messages.MetadataResponse(tuple(described))


def _partition(each: PartitionDescription) -> messages.PartitionMetadata:
    return messages.PartitionMetadata(
        partition=each.partition,
        error=each.error,
        log_start_offset=each.log_start_offset,
        high_watermark=each.high_watermark,
        size_bytes=each.size_bytes,
        segments=each.segments,
        waiting=each.waiting,
    )


async def describe_configs(broker: Broker, message: messages.DescribeConfigsRequest) -> messages.DescribeConfigsResponse:
    topics = []
    async for name in in_turns(message.topics, TOPICS_PER_TURN):
        try:
            config = broker.topics.describe_config(name)
        except RequestError as exc:
            topics.append(messages.TopicConfig(name, exc.as_answer()))
        else:
            entries = {key: messages.ConfigEntry(value, source) for key, (value, source) in config.items()}
            topics.append(messages.TopicConfig(name, None, entries))
    return messages.DescribeConfigsResponse(tuple(topics))


async def create_topics(broker: Broker, message: messages.CreateTopicsRequest) -> messages.CreateTopicsResponse:
    created = []
    async for topic in in_turns(message.topics):
        try:
            partitions = _new_partitions(broker, topic) if message.on_demand else topic.partitions
            topic_id = await broker.topics.create(topic.name, partitions, topic.config, validate_only=message.validate_only)
        except RequestError as exc:
            created.append(messages.CreatedTopic(topic.name, exc.as_answer()))
        else:
            created.append(messages.CreatedTopic(topic.name, None, topic_id or None))
    return messages.CreateTopicsResponse(tuple(created))


def _new_partitions(broker: Broker, topic: messages.NewTopic) -> int:
    """Return the number of partitions of a topic that is created on demand. UnknownTopicOrPartitionError where none is."""
    if not broker.config.auto_create_topics_enable:
        raise UnknownTopicOrPartitionError(f"there is no topic {topic.name!r}, and auto_create_topics_enable is false")
    return topic.partitions or broker.config.num_partitions


async def delete_topics(broker: Broker, message: messages.DeleteTopicsRequest) -> messages.DeleteTopicsResponse:
    deleted = [
        messages.TopicAnswer(name, await error_of(broker.topics.delete(name))) async for name in in_turns(message.topics)
    ]
    return messages.DeleteTopicsResponse(tuple(deleted))


async def create_partitions(broker: Broker, message: messages.CreatePartitionsRequest) -> messages.CreatePartitionsResponse:
    changed = [
        messages.TopicAnswer(topic.name, await error_of(broker.topics.create_partitions(topic.name, topic.total)))
        async for topic in in_turns(message.topics)
    ]
    return messages.CreatePartitionsResponse(tuple(changed))


async def alter_configs(broker: Broker, message: messages.AlterConfigsRequest) -> messages.AlterConfigsResponse:
    changed = [
        messages.TopicAnswer(topic.name, await error_of(broker.topics.alter_configs(topic.name, topic.set, topic.delete)))
        async for topic in in_turns(message.topics)
    ]
    return messages.AlterConfigsResponse(tuple(changed))


async def delete_records(broker: Broker, message: messages.DeleteRecordsRequest) -> messages.DeleteRecordsResponse:
    wanted = [(each.topic_partition, each.before_offset) for each in message.partitions]
    trimmed = [
        messages.DeleteRecordsPartitionResponse(*topic_partition, answer)
        if isinstance(answer, RequestError)
        else messages.DeleteRecordsPartitionResponse(*topic_partition, None, answer)
        async for (topic_partition, _), answer in in_turns(
            zip(wanted, await broker.logs.delete_records_of(wanted), strict=True)
        )
    ]
    return messages.DeleteRecordsResponse(tuple(trimmed))


async def error_of(change: Awaitable[None]) -> RequestError | None:
    """Await the change and return its error as the value of a response; None if it succeeded."""
    try:
        await change
    except RequestError as exc:
        return exc.as_answer()
    return None


async def stage(broker: Broker, message: messages.StageRequest) -> Callable[[], Awaitable[messages.StageResponse]]:
    """Give every partition's batches their place, in the order of the requests, and answer what writes them."""
    writes: list[StageWrite | RequestError] = []
    try:
        for each in message.partitions:
            writes.append(await _announced(broker, message, each))
    except BaseException:  # cancelled: who comes later would wait for them
        for write in writes:
            if not isinstance(write, RequestError):
                await broker.stages.give_up(write)
        raise
    places = [each.topic_partition for each in message.partitions]
    return partial(_write, broker, places, writes)


async def _announced(
    broker: Broker, message: messages.StageRequest, each: messages.StagePartition
) -> StageWrite | RequestError:
    try:
        return await broker.stages.announce(
            message.application, message.version, message.task, each.topic_partition, each.records
        )
    except RequestError as exc:
        return exc.as_answer()
    except ValueError as exc:
        return InvalidRequestError(f"{each.topic_partition}: {exc}")


async def _write(
    broker: Broker, places: list[TopicPartition], writes: list[StageWrite | RequestError]
) -> messages.StageResponse:
    """Write the stages one after the other. On cancellation, discard the remaining ones, because later writers wait for
    them."""
    answers = []
    left = deque(writes)
    try:
        for place in places:
            write = left.popleft()
            staged = write if isinstance(write, RequestError) else await _staged(broker, write)
            if isinstance(staged, RequestError):
                answers.append(messages.StagePartitionResponse(*place, staged))
            else:
                answers.append(messages.StagePartitionResponse(*place, None, staged.size_bytes, staged.crc))
    finally:
        for write in left:
            if not isinstance(write, RequestError):
                await broker.stages.give_up(write)
    return messages.StageResponse(tuple(answers))


async def _staged(broker: Broker, write: StageWrite) -> StagedBytes | RequestError:
    try:
        return await broker.stages.write(write)
    except RequestError as exc:
        return exc.as_answer()


async def commit_stage(broker: Broker, message: messages.CommitStageRequest) -> messages.CommitStageResponse:
    shares = [
        StagedShare(task.task, each.topic_partition, StagedBytes(each.size_bytes, each.crc))
        for task in message.tasks
        for each in task.partitions
    ]
    committed = await broker.stage_commits.commit(message.application, message.version, shares)
    return messages.CommitStageResponse(
        committed.by_this_call,
        tuple(
            messages.StageCommittedPartition(*each.topic_partition, each.base_offset, each.end_offset)
            for each in committed.partitions
        ),
    )


async def abort_stage(broker: Broker, message: messages.AbortStageRequest) -> messages.AbortStageResponse:
    await broker.stage_commits.abort(message.application, message.version, message.tasks)
    return messages.AbortStageResponse()


async def last_commit(broker: Broker, message: messages.LastCommitRequest) -> messages.LastCommitResponse:
    version = broker.stage_commits.last_version(message.application)
    return messages.LastCommitResponse(messages.NO_VERSION if version is None else version)
