"""The native calls that look offsets up: values in, values out. Each partition succeeds or fails alone."""

from __future__ import annotations

from typing import Final

from ....protocol.errors import InvalidRequestError, RequestError
from ....protocol.native import messages
from ...broker import Broker, TimestampAndOffset
from ...broker.procedures import Procedure, mapped
from ...broker.reader import Question
from ..connections.in_turns import in_turns

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
