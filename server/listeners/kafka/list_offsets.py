"""ListOffsets: offsets by time; OffsetForLeaderEpoch: where a leader epoch ends. Source: KIP-79, KIP-734, KIP-405, KIP-320."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError, UnsupportedVersionError
from ....protocol.kafka.connection import LISTED
from ....protocol.kafka.messages.records import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ....protocol.types import EARLIEST_TIMESTAMP, MAX_TIMESTAMP, NO_OFFSET, NO_TIMESTAMP, Isolation, TopicPartition
from ...broker import Broker, Question, TimestampAndOffset
from ...loop.procedures import PAUSE, Procedure, in_turns, mapped
from .door import ENTRIES_PER_TURN, Call, Given, error_code, topics_of_answer

NOT_CHECKED: Final = -1
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

GIVEN_PARTITIONS: Final = 128
"""The most partitions of an answer that is written from its numbers, in one go."""

Answer = TimestampAndOffset | RequestError


def list_offsets(call: Call, body: ListOffsetsRequest) -> Procedure[ListOffsetsResponse | Given]:
    """The first record with a timestamp >= the one asked for; no offset and no error when there is none."""
    isolation = Isolation.READ_COMMITTED if body.isolation_level else Isolation.READ_UNCOMMITTED
    questions: list[Question] = []
    known: dict[TopicPartition, Answer | None] = {}
    """Answers that need no lookup."""
    is_plain, left = True, ENTRIES_PER_TURN
    for topic in body.topics:
        name = topic.name
        for each in topic.partitions:
            left -= 1
            if not left:
                left = ENTRIES_PER_TURN
                yield PAUSE
            # What TopicPartition(...) makes, without its Python-level call.
            topic_partition = tuple.__new__(TopicPartition, (name, each.partition_index))
            timestamp = each.timestamp
            if timestamp >= 0 and each.current_leader_epoch == NOT_CHECKED:
                known[topic_partition] = None
            else:
                is_plain = False
                known[topic_partition] = _without_lookup(call, topic_partition, each)
                timestamp = _asked_timestamp(each)
            questions.append((topic_partition, timestamp))
    count = len(questions)
    if len(known) < count:
        is_plain = False
        yield from _refuse_repeated(questions, known)
    if is_plain:
        answers = yield from call.broker.reader.offsets_for_times(questions, isolation)
    else:
        lookups = yield from mapped(lambda each: None if known[each[0]] else each, questions, ENTRIES_PER_TURN)
        found = iter((yield from call.broker.reader.offsets_for_times(list(filter(None, lookups)), isolation)))
        answers = yield from mapped(lambda each: known[each[0]] or next(found), questions, ENTRIES_PER_TURN)
    if call.needs_message or not call.version or count > GIVEN_PARTITIONS or set(map(type, answers)) != {TimestampAndOffset}:
        return ListOffsetsResponse(topics=(yield from topics_of_answer(body.topics, answers, _partition, _topic)))
    if count == 1:
        [(name, number)] = known
        answer: Any = answers[0]
        # What Given(...) makes, without its Python-level call.
        return tuple.__new__(Given, (LISTED, (name, number, *answer), True))
    left_answers: Iterator[Any] = iter(answers)
    return Given(
        LISTED,
        [
            # Partitions first: where they end, `zip` has taken nothing more of the answers.
            (
                topic.name,
                [(each.partition_index, *answer) for each, answer in zip(topic.partitions, left_answers, strict=False)],
            )
            for topic in body.topics
        ],
        False,
    )


def _refuse_repeated(questions: Sequence[Question], known: dict[TopicPartition, Answer | None]) -> Procedure[None]:
    """Answer each partition that is named more than once with an error."""
    seen: set[TopicPartition] = set()

    def refuse(question: Question) -> None:
        topic_partition = question[0]
        if topic_partition in seen:
            known[topic_partition] = InvalidRequestError(f"{topic_partition} is named more than once").as_answer()
        seen.add(topic_partition)

    yield from mapped(refuse, questions, ENTRIES_PER_TURN)


def _asked_timestamp(asked: ListOffsetsPartition) -> int:
    """Without tiered storage the first local offset is the first one."""
    return EARLIEST_TIMESTAMP if asked.timestamp == EARLIEST_LOCAL_TIMESTAMP else asked.timestamp


def _without_lookup(call: Call, topic_partition: TopicPartition, asked: ListOffsetsPartition) -> Answer | None:
    """The answer for a special timestamp that needs no lookup, else None."""
    try:
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


def _topic(entries: Iterator[ListOffsetsPartitionResponse], topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    return ListOffsetsTopicResponse(name=topic.name, partitions=list(islice(entries, len(topic.partitions))))


def _partition(pair: tuple[ListOffsetsPartition, Answer]) -> ListOffsetsPartitionResponse:
    asked, answer = pair
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
    """Return the end offset of the largest epoch that is at most the requested one, for each partition."""
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


def check_leader_epoch(broker: Broker, topic_partition: TopicPartition, epoch: int) -> None:
    """Raises RequestError: FENCED_LEADER_EPOCH for an epoch below the log's, UNKNOWN_LEADER_EPOCH above it, and what looking
    at the partition raises."""
    if epoch == NOT_CHECKED:
        return
    current = broker.reader.snapshot(topic_partition).leader_epoch
    if epoch < current:
        raise RequestError(
            f"{topic_partition}: leader epoch {epoch} is below the current one, {current}. Refresh metadata",
            ErrorCode.FENCED_LEADER_EPOCH,
        )
    if epoch > current:
        raise RequestError(
            f"{topic_partition}: leader epoch {epoch} is above the current one, {current}", ErrorCode.UNKNOWN_LEADER_EPOCH
        )
