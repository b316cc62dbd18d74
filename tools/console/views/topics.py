"""The list of topics: filtered, sorted and cut into pages here, so that a browser has as little of a thousand as it shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from ....protocol.native.messages import TopicMetadata
from ....server.storage.disk.paths import is_internal
from ..parameters import exact
from ..routes import Call, Route, page
from ..watching.history import shortened
from ..watching.watcher import now_ms

PAGE_SIZE: Final = 100
POINTS: Final = 60
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
        "history": call.watcher.history.read([f"topic:{each['name']}" for each in on_page], now_ms(), POINTS),
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
