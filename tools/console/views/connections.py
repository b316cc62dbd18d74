"""The clients of the server: their versions, bytes over the wire, throttling, and limits.

Rates cover the time since the last response of the same view; without one they are unknown.
"""

from __future__ import annotations

from typing import Any, Final

from ....protocol.errors import RequestError
from ..parameters import exact
from ..routes import Call, Route, page
from ..watching.watcher import now_ms

MAX_CONNECTIONS: Final = 500
RATED: Final = ("requests", "received_bytes", "sent_bytes")


async def connections(call: Call) -> dict[str, Any]:
    """The oldest first."""
    admin, counts = call.watcher.admin, call.watcher.counts
    listed = await admin.list_connections(MAX_CONNECTIONS)
    time_ms = now_ms()
    rows = []
    latest: dict[str, dict[str, int]] = {}
    for each in listed.connections:
        body = each.to_body()
        name = f"{each.listener} {each.peer}"
        latest[name] = {field: body[field] for field in RATED}
        row = {field: None if value in ("", -1) else value for field, value in body.items()}
        row["since_timestamp"] = exact(each.since_timestamp)
        rows.append(row | counts.rates(name, latest[name], time_ms))
    counts.keep(latest, time_ms)
    try:
        quotas = [{"entity": entity, "values": values} for entity, values in await admin.describe_quotas()]
    except RequestError as exc:
        return _told(call, rows, listed.left_out, time_ms, [], exc.message)
    return _told(call, rows, listed.left_out, time_ms, quotas, None)


def _told(call: Call, rows: list[Any], left_out: int, time_ms: int, quotas: list[Any], refused: str | None) -> dict[str, Any]:
    return {
        "status": call.watcher.status.to_json(),
        "now_ms": time_ms,
        "connections": rows,
        "left_out": left_out,
        "quotas": quotas,
        "quotas_refused": refused,
    }


ROUTES: Final[tuple[Route, ...]] = (page("/connections", connections),)
