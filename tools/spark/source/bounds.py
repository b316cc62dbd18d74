"""The bounds of a read, as its options give them, and the offsets that result: as the JSON that Spark keeps in a checkpoint,
and how many partitions share a limit.

Precedence and edges are those of Spark's Kafka source (KafkaSourceProvider, KafkaOffsetReader): a time for all partitions beats
a time for each, which beats offsets; a time means the first record at or after it; an end is exclusive.

Spark compares offsets as text, so they are written in one way only: Kafka's own, `{"topic": {"0": 23}}`, topics in order,
partitions in order of their numbers. An entry of a checkpoint is therefore valid as `startingOffsets`.

A checkpoint has notes, too. A note is a key that no topic can have, with an empty map: Spark's Kafka source reads it as a topic
without partitions, so a query moves to that source and back with its checkpoint.

| note | meaning |
|---|---|
| `events#id=KpN3...` | the id of the topic whose offsets these are; a topic that was created again has another one |
| `events#start=0:7,1:9` | the offsets where the query began; only with the end of its first batch |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from ....protocol.types import NO_OFFSET, TopicPartition
from ..option_table.option import OptionError

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
"""What stands for the two ends of a log among offsets in JSON (Spark: KafkaOffsetRangeLimit)."""


@attrs.frozen
class Earliest:
    """The log start offset of every partition."""


@attrs.frozen
class Latest:
    """The end of every partition: what can be read now."""


@attrs.frozen
class AtOffsets:
    """An offset for each partition, or one of the two that stand for an end. `option` is where it was said."""

    offsets: Mapping[TopicPartition, int]
    option: str


@attrs.frozen
class AtTimes:
    """The first record at or after a time (ms) of each partition."""

    timestamps: Mapping[TopicPartition, int]
    option: str


@attrs.frozen
class AtTime:
    """The first record at or after one time (ms) in every partition."""

    timestamp: int
    option: str


LATEST: Final = Latest()
Bound = Earliest | Latest | AtOffsets | AtTimes | AtTime


class BoundError(OptionError):
    """A bound that does not fit the partitions that are there."""


@attrs.frozen
class PartitionRange:
    """The readable part of a partition: offsets from `low` up to `high`, exclusive, `size_bytes` of log in all."""

    low: int
    high: int
    size_bytes: int = 0
    topic_id: str | None = None


def is_moving(bound: Bound) -> bool:
    """Return whether a bound's offset can change later; offsets in JSON do when one of them stands for an end."""
    return not isinstance(bound, AtOffsets) or any(offset < 0 for offset in bound.offsets.values())


def question(bound: Bound, partition: TopicPartition) -> int | None:
    """The timestamp to ask the server for; None when the partition's range tells."""
    match bound:
        case AtTime(timestamp):
            return timestamp
        case AtTimes(timestamps):
            return timestamps[partition]
    return None


def check_partitions(bound: Bound, partitions: Mapping[TopicPartition, object]) -> None:
    """BoundError unless a bound for each partition names exactly those that are read."""
    match bound:
        case AtOffsets(places) | AtTimes(places):
            named = places.keys()
        case _:
            return
    if missing := sorted(partitions.keys() - named):
        raise BoundError(
            f"option {bound.option} leaves out {_listed(missing)}. Name every partition to read. "
            f"{EARLIEST_OFFSET} and {LATEST_OFFSET} mean the earliest and the latest offset"
        )
    if surplus := sorted(named - partitions.keys()):
        raise BoundError(f"option {bound.option} names {_listed(surplus)}, which the query does not read")


def start_offset(bound: Bound, partition: TopicPartition, range_: PartitionRange, found: int | None, strategy: str) -> int:
    """Return the start offset. `found` is the server's response to `question`: -1 when no record is as late.

    BoundError for that, unless `strategy` is `latest`.
    """
    match bound:
        case Earliest():
            return range_.low
        case Latest():
            return range_.high
        case AtOffsets(offsets):
            return _named_offset(offsets[partition], range_)
    assert found is not None, f"{bound} is a question to the server"
    if found != NO_OFFSET:
        return found
    if strategy == "latest":
        return range_.high
    raise BoundError(
        f"option {bound.option}: no record of {partition} is at or after {question(bound, partition)} ms. Set "
        "an earlier time, or startingOffsetsByTimestampStrategy to latest to begin at its end, offset "
        f"{range_.high}"
    )


def end_offset(bound: Bound, partition: TopicPartition, range_: PartitionRange, found: int | None) -> int:
    """Return the end offset, exclusive; the end of the log when no record is as late as the bound."""
    match bound:
        case Earliest():
            return range_.low
        case AtOffsets(offsets):
            return _named_offset(offsets[partition], range_)
        case AtTime() | AtTimes():
            assert found is not None, f"{bound} is a question to the server"
            return range_.high if found == NO_OFFSET else found
    return range_.high


def check_order(start: Bound, end: Bound) -> None:
    """OptionError when an end lies before its start, as far as the options alone can tell."""
    match start, end:
        case AtTime(first, since), AtTime(last, until):
            places = [("every partition", first, last)]
        case (AtOffsets(firsts, since), AtOffsets(lasts, until)) | (AtTimes(firsts, since), AtTimes(lasts, until)):
            places = [(str(name), first, lasts[name]) for name, first in sorted(firsts.items()) if name in lasts]
        case _:
            return
    for name, first, last in places:
        if first > last >= 0:
            raise OptionError(
                f"options {since} and {until} contradict each other: they request {first} to {last} of {name}. Set "
                "the end to the start or later"
            )


def _named_offset(offset: int, range_: PartitionRange) -> int:
    return {EARLIEST_OFFSET: range_.low, LATEST_OFFSET: range_.high}.get(offset, offset)


def _listed(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:5]))
    return f"{shown} and {len(partitions) - 5} more" if len(partitions) > 5 else shown


OffsetMap = Mapping[TopicPartition, int]
Json = dict[str, dict[str, int]]

_ID: Final = "#id="
_START: Final = "#start="


@attrs.frozen
class StreamOffsets:
    """The offsets of a streaming query, as its checkpoint keeps them."""

    offsets: dict[TopicPartition, int]
    topic_ids: dict[str, str] = attrs.field(factory=dict)
    """By topic; empty in a checkpoint of Spark's Kafka source."""
    starts: dict[TopicPartition, int] = attrs.field(factory=dict)
    """The offsets where the query began; empty but for the end of its first batch."""

    def to_json(self) -> Json:
        """The one way to write them; `json.dumps` of it is the same text for the same offsets."""
        written: Json = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            written.setdefault(topic, {})[str(partition)] = int(offset)
        notes = [f"{topic}{_ID}{topic_id}" for topic, topic_id in self.topic_ids.items()]
        starts: dict[str, list[str]] = {}
        for (topic, partition), offset in sorted(self.starts.items()):
            starts.setdefault(topic, []).append(f"{partition}:{offset}")
        notes += [f"{topic}{_START}{','.join(places)}" for topic, places in starts.items()]
        return written | {note: {} for note in sorted(notes)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffsets:
        """Parse a checkpoint's offsets, also those of Spark's Kafka source. OptionError when it holds anything else."""
        found = cls({})
        try:
            for key, partitions in value.items():
                topic, _, topic_id = key.partition(_ID)
                if topic_id:
                    found.topic_ids[topic] = topic_id
                    continue
                topic, _, starts = key.partition(_START)
                for place in starts.split(",") if starts else ():
                    partition, _, offset = place.partition(":")
                    found.starts[TopicPartition(topic, int(partition))] = int(offset)
                for partition, offset in partitions.items():
                    found.offsets[TopicPartition(key, int(partition))] = int(offset)
        except (AttributeError, ValueError, TypeError) as exc:
            raise OptionError(
                f"the checkpoint has the offsets {json.dumps(value)}, which are not of this source. Use a separate checkpoint"
            ) from exc
        return found


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
