"""The time walk: how the server finds a time, or an offset, in one partition: which segment, which slots of its indexes, which
bytes. It is asked again and again while somebody drags, so one answer is one call of `explain`; all segments come when they are
asked for."""

from __future__ import annotations

import time
from typing import Any, Final

from ....protocol.limits import INT64_MAX
from ....protocol.types import NO_TIMESTAMP, TopicPartition
from ...client.procedures.topics import AtOffset, AtTime, Place, lookup_times
from ..errors import BadParameterError
from ..parameters import exact
from ..routes import Call, Route, page

Walk = dict[str, Any]
SEGMENTS: Final = "log_segments"


async def walk(call: Call) -> Walk:
    """`partition` (0), `at` (ms) or `offset`, the middle of the log's time without either; `segments=0`: without those of the
    whole log."""
    topic, query, admin = call.path["topic"], call.query, call.watcher.admin
    partition = query.integer("partition", 0)
    at, offset = query.integer("at", most=INT64_MAX), query.offset("offset")
    if at is not None and offset is not None:
        raise BadParameterError("offset", "there is at already")
    named = TopicPartition(topic, partition)
    told: Walk = {"topic": topic, "partition": partition}
    if query.choice("segments", ("0", "1"), "1") == "1":
        described = await admin.describe_topic(topic)
        if partition >= len(described.partitions):
            raise BadParameterError("partition", f"{topic} has no partition {partition}")
        whole = await admin.explain(named, AtTime(0), with_segments=True)
        segments = whole[SEGMENTS]
        first, last = await _bounds(call, named, segments)
        told |= {
            "status": call.watcher.status.to_json(),
            "partitions": len(described.partitions),
            "segments": _exact(segments),
            "first": exact(first),
            "last": exact(last),
        }
        if at is None and offset is None:
            at = max(0, (first + last) // 2)
    place: Place = AtTime(at or 0) if offset is None else AtOffset(offset)
    begun_s = time.perf_counter()
    found = await admin.explain(named, place)
    took_ms = (time.perf_counter() - begun_s) * 1000
    return told | {
        "at": None if at is None else exact(at),
        "offset": None if offset is None else exact(offset),
        "walk": _exact(found),
        "took_ms": round(took_ms, 2),
    }


async def _bounds(call: Call, named: TopicPartition, segments: list[Walk]) -> tuple[int, int]:
    """The first and the last time of the log, -1 without any. What the server has not looked at yet begins with its first
    record, as far as anybody knows."""
    last = max((each["max_timestamp"] for each in segments), default=NO_TIMESTAMP)
    known = [each["least_timestamp"] for each in segments if each["least_timestamp"] != NO_TIMESTAMP]
    if segments and segments[0]["least_timestamp"] == NO_TIMESTAMP != last:
        found = (await call.watcher.client.run(lookup_times({named: 0})))[named].timestamp
        known += [found] if found != NO_TIMESTAMP else []
    return min(known, default=last), last


def _exact(value: Any) -> Any:
    """The same for JSON, with integers that JavaScript keeps."""
    if isinstance(value, dict):
        return {name: _exact(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(each) for each in value]
    return exact(value) if type(value) is int else value


ROUTES: Final[tuple[Route, ...]] = (page("/topics/{topic}/walk", walk, ("partition", "at", "offset", "segments")),)
