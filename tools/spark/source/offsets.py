"""Offsets of many partitions: as the JSON that Spark keeps in a checkpoint, and how a limit is shared out among them.

Spark compares offsets as text, so there is one way to write them: Kafka's own, `{"topic": {"0": 23}}`, topics in order,
partitions in order of their numbers. What a checkpoint has can therefore be given as `startingOffsets`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ....protocol.types import TopicPartition
from ..sink.write_options import OptionError

OffsetMap = Mapping[TopicPartition, int]


def to_json(offsets: OffsetMap) -> dict[str, dict[str, int]]:
    """The one way to write them; `json.dumps` of it is the same text for the same offsets."""
    written: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        written.setdefault(topic, {})[str(partition)] = int(offset)
    return written


def from_json(value: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Parse a checkpoint's offsets. OptionError when it holds anything else, as after a change of the source."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in value.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, ValueError, TypeError) as exc:
        raise OptionError(
            f"the checkpoint has the offsets {json.dumps(value)}, which are not of this source; use a checkpoint of its own"
        ) from exc


def backlog(start: OffsetMap, end: OffsetMap) -> dict[TopicPartition, int]:
    """Offsets between the two, of the partitions that have any."""
    return {
        partition: last - start[partition] for partition, last in end.items() if partition in start and last > start[partition]
    }


def prorate(start: OffsetMap, end: OffsetMap, limit: int) -> dict[TopicPartition, int]:
    """`end`, brought so near to `start` that there are about `limit` offsets between, each partition's share by its backlog.

    A share below one offset is one, so that every partition moves and the sum may pass the limit by one for each of them
    (Kafka: KafkaMicroBatchStream.rateLimit). Partitions of `end` that `start` lacks stay where they are.
    """
    waiting = backlog(start, end)
    total = sum(waiting.values())
    limited = dict(end)
    if total <= limit:
        return limited
    for partition, size in waiting.items():
        limited[partition] = start[partition] + min(size, max(1, limit * size // total))
    return limited
