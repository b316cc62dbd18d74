"""The records of a topic: pages from an offset, a time or the end, one record in full, a search, the live tail; writing one by
hand.

And the time walk: how the server finds a time, or an offset, in one partition: which segment, which slots of its indexes, which
bytes. A browser requests it again and again while somebody drags, so one answer is one call of `explain`, with all segments
only on request.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgpack  # type: ignore[import-untyped]

from ....protocol.limits import INT64_MAX
from ....protocol.native.messages import ProducePartition, ProduceRequest
from ....protocol.records.builder import build_batch
from ....protocol.records.partitioners import partition_for_key
from ....protocol.types import NO_TIMESTAMP, Isolation, Record, TimeRange, TopicPartition
from ....server.listeners.http.access import HttpAnswer
from ...client.procedures.topics import LATEST, AtOffset, AtTime, Place, locate, lookup_times
from ..errors import ApiError, BadParameterError
from ..events import EventQueue, event_stream
from ..records.contents import KINDS, shown_record
from ..records.pages import Page, PagedTopic, Places, newer, older, record_at
from ..records.search import PLACES, Needle, Search
from ..records.tail import Tail
from ..routes import Call, Parameters, Route, change, data, exact, page

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 500
DEFAULT_MATCHES: Final = 100
MAX_MATCHES: Final = 1000
MAX_TOGETHER: Final = 50
"""Partitions that are shown together; of topics with more one is chosen."""
MAX_PLACES_CHARS: Final = 2000
BINARY: Final = "application/octet-stream"
ORDERS: Final = ("oldest", "newest")
WHERE: Final = ("partition", "isolation", "as")


@attrs.frozen(kw_only=True)
class Chosen:
    """The chosen part of a topic: offsets from `starts` up to `ends` of its chosen partitions."""

    call: Call
    topic: str
    partition: int | None
    kind: str
    isolation: Isolation
    partitions: list[dict[str, Any]]
    starts: Places
    ends: Places

    @classmethod
    async def of(cls, call: Call) -> Chosen:
        """Raises ApiError, and what the server refuses."""
        query, topic, admin = call.query, call.path["topic"], call.watcher.admin
        kind = query.choice("as", KINDS, "auto")
        isolation = Isolation(query.choice("isolation", [each.value for each in Isolation], Isolation.READ_UNCOMMITTED.value))
        described = await admin.describe_topic(topic)
        readable = {each.partition: each for each in described.partitions if each.error is None}
        partition = query.integer("partition")
        if (partition is None and len(described.partitions) > MAX_TOGETHER) or len(described.partitions) == 1:
            partition = partition or 0
        if partition is not None and partition not in readable:
            if partition >= len(described.partitions):
                raise BadParameterError("partition", f"{topic} has no partition {partition}")
            raise ApiError(422, "PARTITION_OFFLINE", f"partition {partition} of {topic} cannot be read now")
        chosen = list(readable) if partition is None else [partition]
        ends = {each: readable[each].high_watermark for each in chosen}
        if isolation is Isolation.READ_COMMITTED:
            ends = await _located(call, topic, chosen, LATEST, isolation)
        return cls(
            call=call,
            topic=topic,
            partition=partition,
            kind=kind,
            isolation=isolation,
            partitions=[
                {
                    "partition": each.partition,
                    "log_start_offset": exact(each.log_start_offset),
                    "high_watermark": exact(each.high_watermark),
                    "error": None if each.error is None else each.error.message,
                }
                for each in described.partitions
            ],
            starts={each: readable[each].log_start_offset for each in chosen},
            ends=ends,
        )

    async def at(self, time_ms: int) -> Places:
        """Return the offset of the first record at or after a time, per partition; the end where none is."""
        return await _located(self.call, self.topic, list(self.ends), AtTime(time_ms), self.isolation)

    def clamped(self, places: Mapping[int, int]) -> Places:
        return {each: min(max(places.get(each, start), start), self.ends[each]) for each, start in self.starts.items()}

    def single(self, offset: int) -> Places:
        """Raises BadParameterError where it is not said of which partition."""
        if self.partition is None:
            raise BadParameterError("partition", "an offset belongs to a partition. Choose one")
        return self.clamped({self.partition: offset})


async def _located(call: Call, topic: str, partitions: list[int], place: AtTime, isolation: Isolation) -> Places:
    named = [TopicPartition(topic, each) for each in partitions]
    found = await call.watcher.client.run(locate(named, place, isolation))
    return {name.partition: offset for name, offset in found.items()}


# ---- pages -------------------------------------------------------------------------------------------------------------------


async def records(call: Call) -> dict[str, Any]:
    """Return a page of records: the newest, or by one of `offset`, `at`, `from` and `until`.

    `offset` needs `partition`, `at` is in ms, `from` and `until` are `P:OFFSET,...`.
    `at` with `to` (ms, exclusive) selects the records of that range; the next page continues with `from`.
    Further parameters: `limit`, `as`, `isolation`.
    """
    chosen, query = await Chosen.of(call), call.query
    limit = query.integer("limit", DEFAULT_LIMIT, least=1, most=MAX_LIMIT)
    told = await _page(chosen, limit)
    is_older = told.is_older
    rows = told.page.rows
    return {
        "status": call.watcher.status.to_json(),
        "topic": chosen.topic,
        "partitions": chosen.partitions,
        "partition": chosen.partition,
        "as": chosen.kind,
        "isolation": chosen.isolation.value,
        "limit": limit,
        "is_newest_first": is_older,
        "records": rows[::-1] if is_older else rows,
        "older": _cursor(told.page.first, chosen.starts),
        "newer": _cursor(told.page.following, chosen.ends),
        "ends": {str(each): exact(offset) for each, offset in chosen.ends.items()},
        "can_produce": call.settings.allow_changes,
    }


@attrs.frozen
class _Told:
    page: Page
    is_older: bool


async def _page(chosen: Chosen, limit: int) -> _Told:
    query = chosen.call.query
    of = PagedTopic(chosen.call.watcher.client, chosen.topic, chosen.kind, chosen.isolation, chosen.call.settings.schemas)
    offset, at = query.offset("offset"), query.integer("at", most=INT64_MAX)
    begin, until = _places(query, "from"), _places(query, "until")
    times = _range(at, query)
    if times is not None and offset is None and until is None:
        found = await newer(of, chosen.clamped(begin or chosen.starts), chosen.ends, limit, times)
        return _Told(found._replace(first=chosen.starts), False)
    given = [name for name, value in (("offset", offset), ("at", at), ("from", begin), ("until", until)) if value is not None]
    if len(given) > 1:
        raise BadParameterError(given[1], f"{given[0]} is already given")
    if offset is not None:
        begin = chosen.single(offset)
    elif at is not None:
        begin = await chosen.at(at)
    if begin is not None:
        return _Told(await newer(of, chosen.clamped(begin), chosen.ends, limit), False)
    before = chosen.ends if until is None else chosen.clamped(until)
    return _Told(await older(of, before, chosen.starts, limit), True)


def _range(at: int | None, query: Parameters) -> TimeRange | None:
    to = query.integer("to", most=INT64_MAX)
    if to is None:
        return None
    if to < (at or 0):
        raise BadParameterError("to", "the end of a range of times is before its start, `at`")
    return TimeRange(at or 0, to)


def _places(query: Parameters, name: str) -> Places | None:
    """`P:OFFSET,...`"""
    text = query.text(name, max_chars=MAX_PLACES_CHARS)
    if not text:
        return None
    places = {}
    for each in text.split(","):
        partition, _, offset = each.partition(":")
        if not (each.isascii() and partition.isdigit() and offset.isdigit()) or len(partition) > 10 or len(offset) > 19:
            raise BadParameterError(name, f"{each[:100]!r} is not PARTITION:OFFSET")
        places[int(partition)] = int(offset)
    return places


def _cursor(places: Places, limits: Places) -> str | None:
    """None where there is nothing beyond."""
    if all(places[each] == limits[each] for each in places):
        return None
    return ",".join(f"{each}:{offset}" for each, offset in sorted(places.items()))


# ---- one record --------------------------------------------------------------------------------------------------------------


async def record(call: Call) -> dict[str, Any]:
    """Return a record in full, up to the limits of display."""
    partition, found = await _single(call)
    kind = call.query.choice("as", KINDS, "auto")
    schemas = call.settings.schemas
    if schemas is not None:
        await schemas.prepare([found])
    return {"topic": call.path["topic"], "record": shown_record(partition, found, kind, is_detail=True, schemas=schemas)}


async def raw(call: Call) -> HttpAnswer:
    """Its key or value as a file."""
    part = call.path["part"]
    if part not in ("key", "value"):
        raise ApiError(404, "NOT_FOUND", f"a record has a key and a value, but no {part[:100]}")
    partition, found = await _single(call)
    named = f'attachment; filename="{partition}-{found.offset}.{part}"'
    return HttpAnswer(200, (found.key if part == "key" else found.value) or b"", BINARY, (("content-disposition", named),))


async def _single(call: Call) -> tuple[int, Record]:
    place = []
    for name, digits in (("partition", 10), ("offset", 19)):
        text = call.path[name]
        if not (text.isascii() and text.isdigit() and len(text) <= digits) or int(text) > INT64_MAX:
            raise BadParameterError(name, f"{text[:100]!r} is not a number")
        place.append(int(text))
    partition, offset = place
    found = await record_at(call.watcher.client, TopicPartition(call.path["topic"], partition), offset)
    if found is None:
        raise ApiError(404, "NO_SUCH_RECORD", f"no record at offset {offset} of partition {partition}")
    return partition, found


# ---- streams -----------------------------------------------------------------------------------------------------------------


async def search(call: Call) -> HttpAnswer:
    """`q`, `in`, `nocase`; from `offset` or `from` on, or of the times `at` up to `to`; `order`, `limit`. Events `match`,
    `progress`, `done`."""
    query = call.query
    needle = _needle(query)
    if needle is None:
        raise BadParameterError("q", "no text to search for")
    limit = query.integer("limit", DEFAULT_MATCHES, least=1, most=MAX_MATCHES)
    chosen = await Chosen.of(call)
    at, to = query.integer("at", most=INT64_MAX), query.integer("to", most=INT64_MAX)
    offset = query.offset("offset")
    starts = chosen.starts if offset is None else chosen.single(offset)
    begin = _places(query, "from")
    work = Search(
        client=call.watcher.client,
        topic=chosen.topic,
        needle=needle,
        kind=chosen.kind,
        limit=limit,
        starts=starts if begin is None else chosen.clamped(begin),
        ends=chosen.ends,
        times=None if at is None and to is None else TimeRange(at or 0, INT64_MAX + 1 if to is None else to),
        is_newest_first=query.choice("order", ORDERS, "oldest") == "newest",
        isolation=chosen.isolation,
        schemas=call.settings.schemas,
    )
    return _stream(call, work.run)


async def tail(call: Call) -> HttpAnswer:
    """From the end on, or `from`; with `q` and `in` only what matches. Events `records`."""
    chosen = await Chosen.of(call)
    begin = _places(call.query, "from")
    work = Tail(
        client=call.watcher.client,
        topic=chosen.topic,
        kind=chosen.kind,
        places=chosen.ends if begin is None else chosen.clamped(begin),
        needle=_needle(call.query),
        isolation=chosen.isolation,
        schemas=call.settings.schemas,
    )
    return _stream(call, work.run)


def _needle(query: Parameters) -> Needle | None:
    text, place, ignores_case = query.text("q"), query.choice("in", PLACES, "any"), query.flag("nocase")
    return Needle(text, place, ignores_case) if text else None


def _stream(call: Call, run: Any) -> HttpAnswer:
    async def produce(queue: EventQueue) -> None:
        with call.watcher.streaming():
            await run(queue)

    call.watcher.check_streams()
    return event_stream(produce)


SEARCHED: Final = ("q", "in", "nocase", "from")
RECORD: Final = "/topics/{topic}/records/{partition}/{offset}"
ROUTES: Final[tuple[Route, ...]] = (
    page("/topics/{topic}/records", records, (*WHERE, *SEARCHED, "offset", "at", "until", "to", "limit", "order", "live")),
    data(RECORD, record, ("as",)),
    data(f"{RECORD}/{{part}}", raw),
    data("/topics/{topic}/search", search, (*WHERE, *SEARCHED, "offset", "at", "to", "order", "limit")),
    data("/topics/{topic}/tail", tail, (*WHERE, *SEARCHED)),
)


Walk = dict[str, Any]
SEGMENTS: Final = "log_segments"


async def walk(call: Call) -> Walk:
    """`partition` (0), `at` (ms) or `offset`, the middle of the log's time without either; `segments=0`: without those of the
    whole log."""
    topic, query, admin = call.path["topic"], call.query, call.watcher.admin
    partition = query.integer("partition", 0)
    at, offset = query.integer("at", most=INT64_MAX), query.offset("offset")
    if at is not None and offset is not None:
        raise BadParameterError("offset", "at is already given")
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


WALK_ROUTES: Final[tuple[Route, ...]] = (page("/topics/{topic}/walk", walk, ("partition", "at", "offset", "segments")),)


PRODUCED_KINDS: Final = ("text", "json", "msgpack", "hex")
MAX_HEADERS: Final = 100


async def produce(call: Call) -> dict[str, Any]:
    """`{"partition", "key", "key_as", "value", "value_as", "headers": [[name, text], ...], "timestamp"}`; null is null, and a
    partition that is not said is chosen by the key, as Kafka's clients do it. Answers where the record went."""
    topic = call.path["topic"]
    key, value = _bytes(call, "key"), _bytes(call, "value")
    timestamp = call.field("timestamp", int, None)
    if timestamp is not None and not 0 <= timestamp <= INT64_MAX:
        raise BadParameterError("timestamp", f"{timestamp} is not a time in ms")
    described = await call.watcher.admin.describe_topic(topic)
    partition = call.field("partition", int, None)
    if partition is None:
        count = len(described.partitions)
        partition = random.randrange(count) if key is None else partition_for_key(key, count)
    if not 0 <= partition < len(described.partitions):
        raise BadParameterError("partition", f"{topic} has no partition {partition}")
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch([(now_ms if timestamp is None else timestamp, key, value, _headers(call))])
    response = await call.watcher.client.produce(ProduceRequest((ProducePartition(topic, partition, batch),)))
    if response is None:
        raise ApiError(503, "NO_ANSWER", "the record may or may not have been appended")
    (answer,) = response.partitions
    if answer.failure is not None:
        raise answer.failure
    return {"topic": topic, "partition": partition, "offset": exact(answer.base_offset)}


def _bytes(call: Call, name: str) -> bytes | None:
    text, kind = call.field(name, str, None), call.field(f"{name}_as", str, "text")
    if kind not in PRODUCED_KINDS:
        raise BadParameterError(f"{name}_as", f"{kind[:100]!r} is not one of {', '.join(PRODUCED_KINDS)}")
    if text is None:
        return None
    try:
        if kind == "hex":
            return bytes.fromhex(text)
        if kind in ("json", "msgpack"):
            read = json.loads(text)
            return text.encode() if kind == "json" else bytes(msgpack.packb(read))
        return str(text).encode()
    except (ValueError, RecursionError, OverflowError) as exc:
        raise BadParameterError(name, f"is not {kind}: {exc}") from None


def _headers(call: Call) -> tuple[tuple[str, bytes | None], ...]:
    given = call.field("headers", list, [])
    if len(given) > MAX_HEADERS:
        raise BadParameterError("headers", f"has more than {MAX_HEADERS}")
    headers = []
    for each in given:
        match each:
            case [str(name), (str() | None) as value]:
                try:
                    name.encode()
                    headers.append((name, None if value is None else value.encode()))
                except UnicodeEncodeError as exc:
                    raise BadParameterError("headers", f"cannot be written as UTF-8: {exc}") from None
            case _:
                raise BadParameterError("headers", "each is [name, text or null]")
    return tuple(headers)


PRODUCE_ROUTES: Final[tuple[Route, ...]] = (change("POST", "/topics/{topic}/records", produce),)
