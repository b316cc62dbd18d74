"""View of a topic: its partitions as bars of segments over time, data lost to corruption, its configuration with sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from ....protocol.native.messages import Gap, PartitionMetadata, TopicMetadata
from ....protocol.types import MAX_TIMESTAMP, TopicPartition
from ...client.procedures.topics import lookup_times
from ..parameters import exact
from ..routes import Call, Route, page
from ..watching.history import shortened
from ..watching.watcher import now_ms
from .segment_bars import NO_TIME, Bar, bars_of, merged, whole_partition

POINTS: Final = 180
MAX_BARS: Final = 3000
"""Of all partitions together."""
LEAST_BARS: Final = 20
"""Of each."""
EARLIEST_TIME: Final = 0
RATES: Final = ("appended_records_per_second", "appended_bytes_per_second", "fetched_bytes_per_second")


async def topic(call: Call) -> dict[str, Any]:
    """Everything about one topic."""
    name, admin = call.path["topic"], call.watcher.admin
    described = await admin.describe_topic(name)
    await call.watcher.first_sample()
    config = await admin.describe_config(name)
    gaps = {each.partition: each for found in await admin.list_gaps(name) for each in found.partitions}
    bars = await _bars(call, described)
    charted = f"topic:{name}"
    return {
        "status": call.watcher.status.to_json(),
        "name": name,
        "topic_id": described.topic_id,
        "has_segments": call.watcher.has_call("describe_segments"),
        "partitions": [
            _partition(each, bars.get(each.partition, []), gaps[each.partition].gaps if each.partition in gaps else ())
            for each in described.partitions
        ],
        "config": [
            {"key": key, "value": entry.value, "source": entry.source}
            for key, entry in sorted(config.items(), key=lambda e: e[0])
        ],
        "values": _values(call, name),
        "history": call.watcher.history.read([charted], now_ms(), POINTS),
        "now_ms": now_ms(),
    }


async def _bars(call: Call, described: TopicMetadata) -> dict[int, list[Bar]]:
    """Return the bars of each partition: its segments, or one bar for a server that does not describe segments."""
    readable = [each for each in described.partitions if each.error is None]
    if not readable:
        return {}
    if call.watcher.has_call("describe_segments"):
        room = max(LEAST_BARS, MAX_BARS // len(readable))
        told = await bars_of(call.watcher.admin, described.name, [each.partition for each in readable])
        await _begin(call, described.name, told)
        return {number: merged(bars, room) for number, bars in told.items()}
    partitions = [TopicPartition(described.name, each.partition) for each in readable]
    run = call.watcher.client.run
    first = await run(lookup_times(dict.fromkeys(partitions, EARLIEST_TIME)))
    last = await run(lookup_times(dict.fromkeys(partitions, MAX_TIMESTAMP)))
    return {
        each.partition: whole_partition(each, first[place].timestamp, last[place].timestamp)
        for each, place in zip(readable, partitions, strict=True)
    }


async def _begin(call: Call, topic: str, bars: dict[int, list[Bar]]) -> None:
    """Look up when the first record was, where nothing stands before it that would tell."""
    asked = {
        TopicPartition(topic, number): EARLIEST_TIME
        for number, found in bars.items()
        if found and found[0].least_timestamp == NO_TIME != found[0].max_timestamp
    }
    for place, answer in (await call.watcher.client.run(lookup_times(asked))).items():
        found = bars[place.partition]
        found[0] = attrs.evolve(found[0], least_timestamp=min(answer.timestamp, found[0].max_timestamp))


def _partition(told: PartitionMetadata, bars: Sequence[Bar], gaps: Sequence[Gap]) -> dict[str, Any]:
    return {
        "partition": told.partition,
        "error": None if told.error is None else told.error.message,
        "waiting": told.waiting,
        "log_start_offset": exact(told.log_start_offset),
        "high_watermark": exact(told.high_watermark),
        "records": exact(max(0, told.high_watermark - told.log_start_offset)),
        "size_bytes": told.size_bytes,
        "segment_count": told.segments,
        "segments": [bar.to_json() for bar in bars],
        "gaps": [
            {
                "start": exact(gap.start_offset),
                "end": exact(gap.end_offset),
                "records": exact(gap.end_offset - gap.start_offset),
                "size_bytes": gap.size_bytes,
                "file": gap.file,
                "found_ms": gap.found_ms,
                "accepted_ms": gap.accepted_ms,
            }
            for gap in gaps
        ],
    }


def _values(call: Call, name: str) -> dict[str, float | None]:
    found = call.watcher.moment
    told = None if found is None else next((each for each in found["topics"] if each["topic"] == name), None)
    if told is None:
        return {}
    return {key: None if told[key] is None else shortened(told[key]) for key in (*RATES, "loss_window_ms")}


ROUTES: Final[tuple[Route, ...]] = (page("/topics/{topic}", topic),)
