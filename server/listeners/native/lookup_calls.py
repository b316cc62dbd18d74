"""The native calls that look offsets up: values in, values out. Each partition succeeds or fails alone."""

from __future__ import annotations

from typing import Final

from ....protocol.errors import RequestError
from ....protocol.native import messages
from ...broker import Broker
from ..connections.in_turns import in_turns

EXPLAINED_PER_TURN: Final = 4


async def offsets_for_times(broker: Broker, message: messages.OffsetsForTimesRequest) -> messages.OffsetsForTimesResponse:
    questions = [(each.topic_partition, each.timestamp) for each in message.partitions]
    answers = await broker.reader.offsets_for_times(questions, message.isolation)
    return messages.OffsetsForTimesResponse(
        tuple(
            messages.OffsetsForTimesPartitionResponse(topic, partition, answer)
            if isinstance(answer, RequestError)
            else messages.OffsetsForTimesPartitionResponse(
                topic, partition, None, answer.offset, answer.timestamp, answer.leader_epoch
            )
            for ((topic, partition), _), answer in zip(questions, answers, strict=True)
        )
    )


async def explain(broker: Broker, message: messages.ExplainRequest) -> messages.ExplainResponse:
    explained = []
    async for each in in_turns(message.partitions, EXPLAINED_PER_TURN):
        try:
            walk = await broker.reader.explain(each.topic_partition, offset=each.offset, timestamp=each.timestamp)
        except RequestError as exc:
            explained.append(messages.ExplainPartitionResponse(*each.topic_partition, exc.as_answer()))
        else:
            explained.append(messages.ExplainPartitionResponse(*each.topic_partition, None, walk))
    return messages.ExplainResponse(tuple(explained))
