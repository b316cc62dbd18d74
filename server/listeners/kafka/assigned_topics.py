"""Assigned partitions as answers have them: by topic, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....protocol.errors import RequestError
from .door import Call

Partitions = Iterable[tuple[bytes, int]]
"""(topic id, number)."""


def by_topic(partitions: Partitions) -> list[tuple[bytes, list[int]]]:
    """(topic id, partition numbers) for each topic, in order."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(number)
    return list(topics.items())


def named_topics(call: Call, partitions: Partitions) -> Iterator[tuple[bytes, str, list[int]]]:
    """(topic id, name, partition numbers) for each topic, without deleted ones, which have no name."""
    for topic_id, numbers in by_topic(partitions):
        try:
            yield topic_id, call.broker.topics.named(topic_id), numbers
        except RequestError:
            continue
