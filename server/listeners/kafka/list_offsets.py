"""ListOffsets: offsets by time; OffsetForLeaderEpoch: where a leader epoch ends. Source: KIP-79, KIP-734, KIP-405, KIP-320."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from ....protocol.errors import InvalidRequestError, RequestError, UnsupportedVersionError
from ....protocol.kafka.messages.list_offsets import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ....protocol.types import EARLIEST_TIMESTAMP, MAX_TIMESTAMP, NO_OFFSET, NO_TIMESTAMP, Isolation, TopicPartition
from ...broker import TimestampAndOffset
from ..connections.in_turns import in_turns
from .door import Call, error_code
from .leader_epoch import NOT_CHECKED, check_leader_epoch

EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6
FIRST_VERSIONS: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""The first version that knows what is asked as this timestamp."""
ABOUT_TIERS: Final = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)
"""What is asked of remote storage: here nothing is in it, and nothing waits to get there."""

NAMED_PER_TURN: Final = 512
"""Partitions, and topics, of which only the names are looked at, or that are answered with what was found."""

PARTITIONS_AT_ONCE: Final = 16
"""Of a request that may be answered without a turn of the scheduler."""

Question = tuple[TopicPartition, int]
Answer = TimestampAndOffset | RequestError


def list_offsets_at_once(call: Call, body: ListOffsetsRequest) -> ListOffsetsResponse | None:
    """`list_offsets` where few partitions are asked for, each once, and the answers are cached."""
    known: dict[TopicPartition, Answer | None] = {}
    lookups: list[Question] = []
    count = 0
    for topic in body.topics:
        count += len(topic.partitions)
        if count > PARTITIONS_AT_ONCE:
            return None
        for each in topic.partitions:
            topic_partition = TopicPartition(topic.name, each.partition_index)
            answer = None if _is_lookup(each) else _without_lookup(call, topic_partition, each, is_repeated=False)
            known[topic_partition] = answer
            if answer is None:
                lookups.append((topic_partition, _asked_timestamp(each)))
    found = call.broker.reader.offsets_for_times_if_cached(lookups, _isolation(body)) if count == len(known) else None
    if found is None:
        return None
    answers, left = iter(known.values()), iter(found)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[_partition(each, next(answers) or next(left)) for each in topic.partitions]
            )
            for topic in body.topics
        ]
    )


async def list_offsets(call: Call, body: ListOffsetsRequest) -> ListOffsetsResponse:
    """The first record with a timestamp >= the one asked for; no offset and no error when there is none."""
    asked: list[ListOffsetsPartition] = []
    questions: list[Question] = []
    names: set[TopicPartition] = set()
    is_plain = True
    async for topic in in_turns(body.topics, NAMED_PER_TURN):
        for each in topic.partitions:
            topic_partition = TopicPartition(topic.name, each.partition_index)
            names.add(topic_partition)
            asked.append(each)
            questions.append((topic_partition, each.timestamp))
            is_plain = is_plain and _is_lookup(each)
            if not len(asked) % NAMED_PER_TURN:
                await trio.lowlevel.checkpoint()
    if is_plain and len(names) == len(questions):
        answers = await call.broker.reader.offsets_for_times(questions, _isolation(body))
    else:
        answers = await _look_up(call, asked, questions, _isolation(body))
    return await _answered(body, answers)


def _isolation(body: ListOffsetsRequest) -> Isolation:
    return Isolation.READ_COMMITTED if body.isolation_level else Isolation.READ_UNCOMMITTED


def _is_lookup(asked: ListOffsetsPartition) -> bool:
    """Whether the log alone has the answer; it may have others' too, see `_without_lookup`."""
    return asked.timestamp >= 0 and asked.current_leader_epoch == NOT_CHECKED


async def _look_up(
    call: Call, asked: Sequence[ListOffsetsPartition], questions: Sequence[Question], isolation: Isolation
) -> list[Answer]:
    """The answers to questions of which not all are lookups."""
    seen: set[TopicPartition] = set()
    repeated: set[TopicPartition] = set()
    async for topic_partition, _ in in_turns(questions, NAMED_PER_TURN):
        (repeated if topic_partition in seen else seen).add(topic_partition)
    answers: list[Answer | None] = []
    lookups: list[Question] = []
    async for each, (topic_partition, _) in in_turns(zip(asked, questions, strict=True)):
        answer = _without_lookup(call, topic_partition, each, is_repeated=topic_partition in repeated)
        if answer is None:
            lookups.append((topic_partition, _asked_timestamp(each)))
        answers.append(answer)
    found = iter(await call.broker.reader.offsets_for_times(lookups, isolation))
    return [next(found) if answer is None else answer async for answer in in_turns(answers, NAMED_PER_TURN)]


async def _answered(body: ListOffsetsRequest, answers: Sequence[Answer]) -> ListOffsetsResponse:
    """The answers in the places of their questions."""
    topics: list[ListOffsetsTopicResponse] = []
    count = 0
    async for topic in in_turns(body.topics, NAMED_PER_TURN):
        partitions: list[ListOffsetsPartitionResponse] = []
        for each in topic.partitions:
            partitions.append(_partition(each, answers[count]))
            count += 1
            if not count % NAMED_PER_TURN:
                await trio.lowlevel.checkpoint()
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _asked_timestamp(asked: ListOffsetsPartition) -> int:
    """Without tiered storage the first local offset is the first one."""
    return EARLIEST_TIMESTAMP if asked.timestamp == EARLIEST_LOCAL_TIMESTAMP else asked.timestamp


def _without_lookup(
    call: Call, topic_partition: TopicPartition, asked: ListOffsetsPartition, *, is_repeated: bool
) -> TimestampAndOffset | RequestError | None:
    """The answer for a special timestamp that needs no lookup, else None."""
    try:
        if is_repeated:
            raise InvalidRequestError(f"{topic_partition} is named more than once")
        first_version = FIRST_VERSIONS.get(asked.timestamp, 0)
        if call.version < first_version or asked.timestamp < EARLIEST_PENDING_UPLOAD_TIMESTAMP:
            raise UnsupportedVersionError(f"{topic_partition}: ListOffsets v{call.version} has no timestamp {asked.timestamp}")
        check_leader_epoch(call.broker, topic_partition, asked.current_leader_epoch)
        if asked.timestamp in ABOUT_TIERS:
            call.broker.reader.snapshot(topic_partition)  # it has to be there
            return TimestampAndOffset(NO_TIMESTAMP, NO_OFFSET)
    except RequestError as exc:
        return exc.as_answer()
    return None


def _partition(asked: ListOffsetsPartition, answer: Answer) -> ListOffsetsPartitionResponse:
    if isinstance(answer, RequestError):
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=answer.code, old_style_offsets=[])
    timestamp, offset, leader_epoch = answer
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        old_style_offsets=[offset] if offset >= 0 and asked.max_num_offsets > 0 else [],
        timestamp=timestamp,
        offset=offset,
        leader_epoch=leader_epoch,
    )


async def offset_for_leader_epoch(call: Call, body: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """Where the largest epoch ends that is not above the one asked for."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_offset(call, topic.topic, each) async for each in in_turns(topic.partitions)],
            )
            async for topic in in_turns(body.topics)
        ]
    )


def _end_offset(call: Call, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    topic_partition = TopicPartition(topic, asked.partition)
    epoch = end_offset = -1
    error: RequestError | None = None
    try:
        check_leader_epoch(call.broker, topic_partition, asked.current_leader_epoch)
        epoch, end_offset = call.broker.reader.end_offset_for_epoch(topic_partition, asked.leader_epoch)
    except RequestError as exc:
        error = exc.as_answer()
    return EpochEndOffset(error_code=error_code(error), partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
