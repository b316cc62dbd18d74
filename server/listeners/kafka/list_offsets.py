"""ListOffsets: offsets by time; OffsetForLeaderEpoch: where a leader epoch ends. Source: KIP-79, KIP-734, KIP-405, KIP-320."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import trio

from ....protocol.errors import InvalidRequestError, RequestError, UnsupportedVersionError
from ....protocol.kafka.connection import LISTED
from ....protocol.kafka.messages.records import (
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
from ..connections.connection_task import Work
from ..connections.in_turns import in_turns
from .door import Call, error_code
from .leader_epoch import NOT_CHECKED, check_leader_epoch
from .session import Turn

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

PARTITIONS_AT_ONCE: Final = 128
"""Of a request that may be answered without a turn of the scheduler, if that many lookups fit it."""

Question = tuple[TopicPartition, int]
Answer = TimestampAndOffset | RequestError


def take_list_offsets(call: Call, turn: Turn, body: ListOffsetsRequest) -> Work | None:
    """Answer a request, or answer what does it where something is to be waited for."""
    answers = _answers_at_once(call, body)
    if answers is None:
        return partial(_take_list_offsets_later, call, turn, body)
    if call.version == 0 or turn.needs_body or set(map(type, answers)) != {TimestampAndOffset}:
        left = iter(answers)
        told = [
            ListOffsetsTopicResponse(name=topic.name, partitions=[_partition(each, next(left)) for each in topic.partitions])
            for topic in body.topics
        ]
        turn.answer(ListOffsetsResponse(topics=told))
    else:
        found: Iterator[Any] = iter(answers)
        topics = [
            # Partitions first: where they end, `zip` has taken nothing more of what was found.
            (topic.name, [(each.partition_index, *told) for each, told in zip(topic.partitions, found, strict=False)])
            for topic in body.topics
        ]
        throttle_ms = turn.charge() if turn.session.quotas.is_active else 0
        turn.answer(None, LISTED.buffers(turn.request, (throttle_ms, topics)), ())
    return None


def _answers_at_once(call: Call, body: ListOffsetsRequest) -> Sequence[Answer] | None:
    """The answers where few partitions are asked for, each once, and all is cached."""
    known: dict[TopicPartition, Answer | None] = {}
    lookups: list[Question] = []
    count = sum([len(topic.partitions) for topic in body.topics])
    if count > PARTITIONS_AT_ONCE or not call.broker.reader.may_look_up_now(count):
        return None
    for topic in body.topics:
        name = topic.name
        for each in topic.partitions:
            # What TopicPartition(...) makes, without its Python-level call.
            topic_partition = tuple.__new__(TopicPartition, (name, each.partition_index))
            timestamp = each.timestamp
            if timestamp >= 0 and each.current_leader_epoch == NOT_CHECKED:
                answer = None
            else:
                answer = _without_lookup(call, topic_partition, each, is_repeated=False)
                timestamp = _asked_timestamp(each)
            known[topic_partition] = answer
            if answer is None:
                lookups.append((topic_partition, timestamp))
    if count != len(known):
        return None
    found = call.broker.reader.offsets_for_times_if_cached(lookups, _isolation(body))
    if found is None or len(found) == count:
        return found
    left = iter(found)
    return [answer or next(left) for answer in known.values()]


async def _take_list_offsets_later(call: Call, turn: Turn, body: ListOffsetsRequest) -> None:
    turn.answer(await list_offsets(call, body))


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
