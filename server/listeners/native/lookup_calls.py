"""The native calls that look offsets up: values in, values out. Each partition succeeds or fails alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....protocol.errors import InvalidRequestError, RequestError
from ....protocol.native import messages
from ....protocol.types import TopicPartition
from ...broker import Broker, TimestampAndOffset
from ..connections.in_turns import in_turns

EXPLAINED_PER_TURN: Final = 4

Question = tuple[TopicPartition, int]


def offsets_for_times_at_once(
    broker: Broker, message: messages.OffsetsForTimesRequest
) -> messages.OffsetsForTimesResponse | None:
    """`offsets_for_times` if the answers are cached."""
    questions = _questions(message)
    answers = broker.reader.offsets_for_times_if_cached(questions, message.isolation)
    return None if answers is None else _found(questions, answers)


async def offsets_for_times(broker: Broker, message: messages.OffsetsForTimesRequest) -> messages.OffsetsForTimesResponse:
    questions = _questions(message)
    answers = await broker.reader.offsets_for_times(questions, message.isolation)
    pairs = zip(questions, answers, strict=True)
    return messages.OffsetsForTimesResponse(tuple([_answer(*each) async for each in in_turns(pairs)]))


def _questions(message: messages.OffsetsForTimesRequest) -> list[Question]:
    return [(each.topic_partition, each.timestamp) for each in message.partitions]


def _found(
    questions: Sequence[Question], answers: Sequence[TimestampAndOffset | RequestError]
) -> messages.OffsetsForTimesResponse:
    return messages.OffsetsForTimesResponse(tuple(map(_answer, questions, answers)))


def _answer(question: Question, answer: TimestampAndOffset | RequestError) -> messages.OffsetsForTimesPartitionResponse:
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
