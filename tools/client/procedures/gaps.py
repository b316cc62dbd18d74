"""Offsets that damage took out of logs, as generators: requests out, answers in, as in `procedures`."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.native.messages import AcceptGapsPartition, AcceptGapsRequest, ListGapsRequest, TopicGaps
from ....protocol.types import TopicPartition
from .topics import Procedure, checked


def list_gaps(topics: Iterable[str] | None) -> Procedure[list[TopicGaps]]:
    """What is missing of these topics, or of all that miss something. Raises the first error of a topic."""
    response = yield ListGapsRequest(None if topics is None else tuple(topics))
    return list(checked(response.topics))


def accept_gap(partition: TopicPartition, start_offset: int) -> Procedure[int]:
    """Let readers pass over the gap that starts there; answers its end, exclusive. Raises RequestError."""
    response = yield AcceptGapsRequest((AcceptGapsPartition(*partition, start_offset),))
    (answer,) = checked(response.partitions)
    return int(answer.end_offset)
