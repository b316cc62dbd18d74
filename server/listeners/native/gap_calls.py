"""The native calls about offsets that damage took out of logs: values in, values out."""

from __future__ import annotations

from ....protocol.errors import RequestError
from ....protocol.native import messages
from ...broker import Broker, ListedGap
from ..connections.in_turns import in_turns


async def list_gaps(broker: Broker, message: messages.ListGapsRequest) -> messages.ListGapsResponse:
    if message.topics is not None:
        return messages.ListGapsResponse(tuple([await _topic(broker, name) async for name in in_turns(message.topics)]))
    found = [await _topic(broker, name) async for name in in_turns(list(broker.topics.names()))]
    return messages.ListGapsResponse(tuple([topic for topic in found if topic.partitions]))


async def _topic(broker: Broker, name: str) -> messages.TopicGaps:
    """One that is deleted meanwhile has an error and no partitions."""
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
