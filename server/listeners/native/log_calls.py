"""The native calls about logs: lookups of offsets, gaps, and readers that share a log or read its files. Values in, values out;
each partition succeeds or fails alone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio

from ....protocol.errors import InvalidRequestError, RequestError
from ....protocol.limits import MAX_SPLIT_POINTS
from ....protocol.native import messages
from ...broker import Broker, LeasedPartition, ListedGap, TimestampAndOffset
from ...broker.reader import Question
from ...loop.procedures import Procedure, in_turns, mapped

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
            error = found or InvalidRequestError(f"{topic_partition} is not part of lease {lease.lease_id}; take another one")
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
