"""ListOffsets: offsets by time; OffsetForLeaderEpoch: where a leader epoch ends. Source: KIP-79, KIP-734, KIP-405, KIP-320."""

from __future__ import annotations

from typing import Final

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
from .leader_epoch import check_leader_epoch

EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
FIRST_VERSIONS: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL_TIMESTAMP: 8, LATEST_TIERED_TIMESTAMP: 9}
"""The first version that knows what is asked as this timestamp."""

Question = tuple[TopicPartition, int]


NAMED_PER_TURN: Final = 512
"""Partitions of which only the names are looked at."""


async def list_offsets(call: Call, body: ListOffsetsRequest) -> ListOffsetsResponse:
    """The first record with a timestamp >= the one asked for; no offset and no error when there is none."""
    isolation = Isolation.READ_COMMITTED if body.isolation_level else Isolation.READ_UNCOMMITTED
    asked: list[tuple[TopicPartition, ListOffsetsPartition]] = []
    seen: set[TopicPartition] = set()
    repeated: set[TopicPartition] = set()
    every = ((topic.name, each) for topic in body.topics for each in topic.partitions)
    async for name, each in in_turns(every, NAMED_PER_TURN):
        topic_partition = TopicPartition(name, each.partition_index)
        asked.append((topic_partition, each))
        (repeated if topic_partition in seen else seen).add(topic_partition)
    answers: dict[TopicPartition, TimestampAndOffset | RequestError] = {}
    questions: list[Question] = []
    async for topic_partition, each in in_turns(asked):
        answer = _without_lookup(call, topic_partition, each, is_repeated=topic_partition in repeated)
        if answer is None:
            questions.append((topic_partition, _asked_timestamp(each)))
        else:
            answers[topic_partition] = answer
    found = await call.broker.reader.offsets_for_times(questions, isolation)
    answers |= {topic_partition: answer for (topic_partition, _), answer in zip(questions, found, strict=True)}
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _partition(each, answers[TopicPartition(topic.name, each.partition_index)])
                    async for each in in_turns(topic.partitions)
                ],
            )
            async for topic in in_turns(body.topics)
        ]
    )


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
        if call.version < first_version or asked.timestamp < LATEST_TIERED_TIMESTAMP:
            raise UnsupportedVersionError(f"{topic_partition}: ListOffsets v{call.version} has no timestamp {asked.timestamp}")
        check_leader_epoch(call.broker, topic_partition, asked.current_leader_epoch)
        if asked.timestamp == LATEST_TIERED_TIMESTAMP:
            call.broker.reader.snapshot(topic_partition)  # it has to be there
            return TimestampAndOffset(NO_TIMESTAMP, NO_OFFSET)
    except RequestError as exc:
        return exc.as_answer()
    return None


def _partition(asked: ListOffsetsPartition, answer: TimestampAndOffset | RequestError) -> ListOffsetsPartitionResponse:
    if isinstance(answer, RequestError):
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=answer.code, old_style_offsets=[])
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        old_style_offsets=[answer.offset] if answer.offset >= 0 and asked.max_num_offsets > 0 else [],
        timestamp=answer.timestamp,
        offset=answer.offset,
        leader_epoch=answer.leader_epoch,
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
