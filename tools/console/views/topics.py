"""The list of topics, filtered, sorted and cut into pages here, so that a browser has as little of a thousand as it shows. And
one topic: its partitions as bars of segments over time or offsets, data lost to corruption, its configuration with sources. Of
neighbours that are too many to be drawn one bar is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs

from ....protocol.limits import MAX_DESCRIBED_SEGMENTS
from ....protocol.native.messages import DescribedSegment, Gap, PartitionMetadata, TopicMetadata
from ....protocol.types import MAX_TIMESTAMP, TopicPartition
from ....server.storage.disk.paths import is_internal
from ...client.admin import Admin
from ...client.procedures.topics import lookup_times
from ..routes import Call, Route, exact, page
from ..watching.history import shortened
from ..watching.watcher import now_ms

PAGE_SIZE: Final = 100
LIST_POINTS: Final = 60
"""Of a line in the list."""
SORTS: Final = ("name", "partitions", "records", "size", "in", "out")
RATES: Final = ("appended_records_per_second", "appended_bytes_per_second", "fetched_bytes_per_second")

Row = dict[str, Any]


async def topics(call: Call) -> dict[str, Any]:
    """`q`: a part of the name; `sort`, `order`, `page`; `internal=1`: those of the server, too."""
    query = call.query
    part = query.text("q", max_chars=300).lower()
    sort = query.choice("sort", SORTS, "name")
    order = query.choice("order", ("asc", "desc"), "asc" if sort == "name" else "desc")
    with_internal = query.flag("internal")
    await call.watcher.first_sample()
    every = await call.watcher.topics()
    shown = [each for each in every if with_internal or not is_internal(each.name)]
    told = _told(call)
    rows = [_row(each, told.get(each.name)) for each in shown if part in each.name.lower()]
    rows.sort(key=_key(sort), reverse=order == "desc")
    pages = max(1, math.ceil(len(rows) / PAGE_SIZE))
    number = min(query.integer("page", 1, least=1), pages)
    on_page = rows[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
    return {
        "status": call.watcher.status.to_json(),
        "total": len(every),
        "internal": sum(1 for each in every if is_internal(each.name)),
        "found": len(rows),
        "page": number,
        "pages": pages,
        "page_size": PAGE_SIZE,
        "sort": sort,
        "order": order,
        "q": part,
        "with_internal": with_internal,
        "without_rates": sum(1 for each in on_page if each["in"] is None),
        "size_bytes": sum(each["size_bytes"] for each in rows),
        "records": exact(sum(int(each["records"]) for each in rows)),
        "topics": on_page,
        "history": call.watcher.history.read([f"topic:{each['name']}" for each in on_page], now_ms(), LIST_POINTS),
    }


def _told(call: Call) -> dict[str, dict[str, Any]]:
    """Return the statistics of topics by name: the first 500 of them."""
    found = call.watcher.moment
    return {} if found is None else {each["topic"]: each for each in found["topics"]}


def _row(topic: TopicMetadata, told: dict[str, Any] | None) -> Row:
    partitions = topic.partitions
    rates = {name: None if told is None or told[name] is None else shortened(told[name]) for name in RATES}
    return {
        "name": topic.name,
        "partitions": len(partitions),
        "records": exact(sum(max(0, each.high_watermark - each.log_start_offset) for each in partitions)),
        "size_bytes": sum(each.size_bytes for each in partitions),
        "segments": sum(each.segments for each in partitions),
        "in_records": rates["appended_records_per_second"],
        "in": rates["appended_bytes_per_second"],
        "out": rates["fetched_bytes_per_second"],
        "offline": sum(1 for each in partitions if each.error is not None),
        "waiting": sum(1 for each in partitions if each.waiting is not None),
        "is_compacted": "compact" in topic.config.get("cleanup.policy", ""),
        "overridden": len(topic.config),
    }


def _key(sort: str) -> Callable[[Row], Any]:
    if sort == "name":
        return lambda row: row["name"]
    field = "size_bytes" if sort == "size" else sort
    return lambda row: (-1 if row[field] is None else int(row[field]), row["name"])


ROUTES: Final[tuple[Route, ...]] = (page("/topics", topics, ("q", "sort", "order", "page", "internal")),)


POINTS: Final = 180
MAX_BARS: Final = 3000
"""Of all partitions together."""
LEAST_BARS: Final = 20
"""Of each."""
EARLIEST_TIME: Final = 0


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


TOPIC_ROUTES: Final[tuple[Route, ...]] = (page("/topics/{topic}", topic),)


NO_TIME: Final = -1
MAX_SEGMENTS: Final = 20_000
"""That are asked for of one topic."""


@attrs.frozen(kw_only=True)
class Bar:
    """The bar of a segment, or of `count` neighbours. Times are -1 where they are unknown or the segment is empty."""

    base_offset: int
    next_offset: int
    size_bytes: int
    least_timestamp: int
    max_timestamp: int
    is_active: bool = False
    is_compacted: bool = False
    is_guessed: bool = False
    """Whether `least_timestamp` is not the server's."""
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        return {
            "base": exact(self.base_offset),
            "next": exact(self.next_offset),
            "size": self.size_bytes,
            "least": exact(self.least_timestamp),
            "max": exact(self.max_timestamp),
            "active": self.is_active,
            "compacted": self.is_compacted,
            "guessed": self.is_guessed,
            "count": self.count,
        }


async def bars_of(admin: Admin, topic: str, partitions: Sequence[int]) -> dict[int, list[Bar]]:
    """A bar for each segment, by partition; of MAX_SEGMENTS at most, the oldest of each partition that come first.

    What the server does not know of the least timestamp of a segment is taken from the one before it: mostly records come in
    the order of their times."""
    begin = {TopicPartition(topic, number): 0 for number in partitions}
    bars: dict[int, list[Bar]] = {number: [] for number in partitions}
    room = MAX_SEGMENTS
    while begin and room > 0:
        told = await admin.describe_segments(*begin, from_offsets=begin, max_segments=min(room, MAX_DESCRIBED_SEGMENTS))
        begin = {}
        for each in told:
            found = bars[each.partition]
            for segment in each.segments:
                found.append(_bar_of(segment, found[-1].max_timestamp if found else NO_TIME))
            room -= len(each.segments)
            if each.left_out:
                begin[TopicPartition(topic, each.partition)] = found[-1].next_offset if found else 0
    return bars


def _bar_of(segment: DescribedSegment, before: int) -> Bar:
    least, most = segment.least_timestamp, segment.max_timestamp
    is_known = least != NO_TIME
    return Bar(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        least_timestamp=least if is_known else min(before, most),
        max_timestamp=most,
        is_active=segment.is_active,
        is_compacted=segment.is_cleaned,
        is_guessed=not is_known and most != NO_TIME,
    )


def whole_partition(told: PartitionMetadata, least_timestamp: int, max_timestamp: int) -> list[Bar]:
    """Return one bar for a whole partition; no bar for an empty partition."""
    if told.high_watermark <= told.log_start_offset:
        return []
    bar = Bar(
        base_offset=told.log_start_offset,
        next_offset=told.high_watermark,
        size_bytes=told.size_bytes,
        least_timestamp=least_timestamp,
        max_timestamp=max_timestamp,
        is_active=True,
        count=max(1, told.segments),
    )
    return [bar]


def merged(bars: Sequence[Bar], most: int) -> list[Bar]:
    """At most so many: each of a run of neighbours. The active one stands alone."""
    if len(bars) <= most:
        return list(bars)
    closed, active = [each for each in bars if not each.is_active], [each for each in bars if each.is_active]
    run = -(-len(closed) // max(1, most - len(active)))
    return [*(_joined(closed[start : start + run]) for start in range(0, len(closed), run)), *active]


def _joined(bars: Sequence[Bar]) -> Bar:
    return Bar(
        base_offset=bars[0].base_offset,
        next_offset=bars[-1].next_offset,
        size_bytes=sum(each.size_bytes for each in bars),
        least_timestamp=min(_known(each.least_timestamp for each in bars), default=NO_TIME),
        max_timestamp=max((each.max_timestamp for each in bars), default=NO_TIME),
        is_compacted=all(each.is_compacted for each in bars),
        is_guessed=bars[0].is_guessed,
        count=sum(each.count for each in bars),
    )


def _known(times: Iterable[int]) -> Iterable[int]:
    return (each for each in times if each != NO_TIME)
