"""The server as a whole. The overview: whether it is ready, what goes in and out, what a power cut could take, how long the
disk lasts, damage, lagging groups, mirrors, links of the forwarder; the same is sent as an event with each sample. Its clients:
versions, bytes, throttling, limits, and rates since the last response of the same view. And logging in and out: a user's rights
are enforced by the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ....protocol.errors import RequestError
from ....server.listeners.http.access import JSON, HttpAnswer
from ...client.login import LoginConfig
from ..around.links import KnownLinks
from ..errors import ApiError
from ..events import EventQueue, event_stream
from ..routes import Call, Route, data, exact, of_console, page
from ..watching.history import shortened
from ..watching.watcher import CHARTED, Watcher, now_ms

BUSIEST: Final = 8
POINTS: Final = 180
"""Of a chart of 15 minutes: one each 5 s."""
SPARK_POINTS: Final = 60
"""Of a line in a table."""
MOST_POINTS: Final = 900
TOLD: Final = (
    *CHARTED,
    *("received_bytes_per_second", "sent_bytes_per_second", "loss_window_records", "failed_syncs", "groups", "topic_count"),
    *("partitions", "partitions_offline", "log_bytes", "waiting_appends", "open_transactions", "compacting", "insecure"),
    *("connections", "interval_s", "time_ms"),
)
DAMAGE: Final = ("gaps", "gap_records", "open_gaps")
MIRROR: Final = ("link", "source", "state", "partitions", "lag_ms", "lag_records", "lag_bytes")
DIRECTORY: Final = ("path", "partitions", "error", "is_refusing", "reserve_bytes", "free_bytes", "total_bytes")


async def overview(call: Call) -> dict[str, Any]:
    """Everything, with the history of the charts."""
    await call.watcher.first_sample()
    if call.watcher.refused is not None:
        raise call.watcher.refused
    await call.links.fresh()
    told, history = describe(call.watcher, call.links), call.watcher.history
    listed = [f"topic:{each['topic']}" for each in told.get("topics", ())] + [
        f"group:{each['group']}" for each in told.get("lags", ())
    ]
    return {
        **told,
        "history": history.read(CHARTED, now_ms(), POINTS),
        "sparks": history.read(listed, now_ms(), SPARK_POINTS),
    }


async def history(call: Call) -> dict[str, Any]:
    """`series`: names with commas between them, `topic:NAME` and `group:NAME` among them."""
    names = [name for name in call.query.text("series").split(",") if name]
    points = call.query.integer("points", POINTS, least=1, most=MOST_POINTS)
    return call.watcher.history.read(names or CHARTED, now_ms(), points)


async def events(call: Call) -> HttpAnswer:
    """An event `sample` each second; `ended` when the session is over."""
    watcher = call.watcher

    async def produce(queue: EventQueue) -> None:
        watcher.subscribe(queue)
        try:
            await queue.finished()
        finally:
            watcher.unsubscribe(queue)

    return event_stream(produce)


def describe(watcher: Watcher, links: KnownLinks) -> dict[str, Any]:
    """Describe the state of the server. Without a sample this is only whether the server responds, and why not.

    Users who may not see its statistics see no links.
    """
    found, counted = watcher.moment, watcher.statistics
    told: dict[str, Any] = {"status": watcher.status.to_json(), "now_ms": now_ms(), "server": _server(watcher)}
    reasons = list(_reasons(watcher))
    told["ready"] = {"is_ready": not reasons, "reasons": reasons}
    if found is None or counted is None:
        return told
    values = {name: found[name] for name in TOLD}
    told["values"] = {name: shortened(value) if isinstance(value, float) else value for name, value in values.items()}
    told["directories"] = list(_directories(counted))
    told["damage"] = _damage(counted)
    told["topics"] = found["topics"][:BUSIEST]
    told["lags"] = _lags(counted["groups"]["lags"])
    told["apis"] = found["apis"][:BUSIEST]
    told["mirrors"] = [_mirror(each) for each in found["mirrors"][:BUSIEST]]
    if watcher.refused is None and not watcher.wants_login:
        told |= links.told()
    return told


def _server(watcher: Watcher) -> dict[str, Any] | None:
    hello = watcher.hello
    if hello is None:
        return None
    return {"version": hello.version, "node_id": hello.node_id, "cluster_id": hello.cluster_id}


def _reasons(watcher: Watcher) -> Iterator[str]:
    """Why the server is not ready."""
    if not watcher.status.is_connected:
        yield watcher.status.reason or "no response"
        return
    if watcher.statistics is None:
        return
    for each in watcher.statistics["directories"]:
        if each["error"] is not None:
            yield f"log directory {each['path']} is out of service: {each['error']}"
        elif each["is_refusing"]:
            yield f"log directory {each['path']} takes no appends: less than {each['reserve_bytes']:,} bytes are free"
    if watcher.statistics["log_bound"]["is_refusing"]:
        yield "appends are refused: the logs have reached log_max_bytes"
    if offline := watcher.statistics["total"]["offline"]:
        yield f"{offline:,} partition{'s are' if offline > 1 else ' is'} offline"


def _directories(counted: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    wear = {each["path"]: each for each in (counted.get("wear") or {}).get("directories", ())}
    for each in counted["directories"]:
        of_disk = wear.get(each["path"], {})
        yield {
            **{name: each[name] for name in DIRECTORY},
            "full_in_s": of_disk.get("full_in_s"),
            "days_left": of_disk.get("days_left"),
        }


def _mirror(told: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the link of a mirror: its progress, and what it cannot copy."""
    troubles = [each for each in (told["error"], *told["troubles"]) if each]
    lag = "unknown" if told["lag_ms"] < 0 else f"{told['lag_ms']:.0f} ms, {told['lag_records']:,} records"
    text = f"{told['link']} from {told['source']}: {told['state']}, lag {lag}"
    text = f"{text}. {troubles[0]}" if troubles else text
    return {**{name: told[name] for name in MIRROR}, "troubles": troubles[:BUSIEST], "text": text}


def _damage(counted: Mapping[str, Any]) -> dict[str, Any]:
    damaged = [each for each in counted["topics"] if each["gaps"]]
    return {
        **{name: sum(each[name] for each in damaged) for name in DAMAGE},
        "topics": [each["topic"] for each in damaged[:BUSIEST]],
        "dropped_records": counted["total"].get("dropped_records", 0),
        "scrub_damages": counted["scrub"]["damages"],
        "scrub_passes": counted["scrub"]["passes"],
        "uncleanable": counted["cleaner"]["uncleanable"],
    }


def _lags(lags: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The largest by group, as the 200 partitions with the largest lags say."""
    groups: dict[str, dict[str, Any]] = {}
    for each in lags:
        group = groups.setdefault(each["group"], {"group": each["group"], "lag": 0, "topics": {}})
        group["lag"] += each["lag"]
        group["topics"][each["topic"]] = group["topics"].get(each["topic"], 0) + each["lag"]
    largest = sorted(groups.values(), key=lambda each: -each["lag"])[:BUSIEST]
    return [{**each, "topics": sorted(each["topics"], key=lambda name: -each["topics"][name])} for each in largest]


ROUTES: Final[tuple[Route, ...]] = (
    page("/", overview),
    data("/history", history, ("series", "points")),
    data("/events", events),
)


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
    quotas: list[Any] = []
    refused = None
    try:
        quotas = [{"entity": entity, "values": values} for entity, values in await admin.describe_quotas()]
    except RequestError as exc:
        refused = exc.message
    return {
        "status": call.watcher.status.to_json(),
        "now_ms": time_ms,
        "connections": rows,
        "left_out": listed.left_out,
        "quotas": quotas,
        "quotas_refused": refused,
    }


CONNECTIONS_ROUTES: Final[tuple[Route, ...]] = (page("/connections", connections),)


MAX_CHARS: Final = 1000


async def log_in(call: Call) -> HttpAnswer:
    """`{"user", "password"}`; answers with the cookie of a session, and the CSRF token that belongs to it."""
    user, password = call.field("user", str), call.field("password", str)
    if not 0 < len(user) <= MAX_CHARS or not 0 < len(password) <= MAX_CHARS:
        raise ApiError(400, "BAD_PARAMETER", "both user and password are required")
    settings = call.settings
    login = LoginConfig(user=user, password=password)
    watcher = Watcher(settings.server, settings.tls, login, call.watcher.describe)
    cookie = await call.sessions.log_in(user, watcher)
    if call.session is not None:
        call.sessions.log_out(call.cookie)
    return _told({"user": user, "csrf_token": call.sessions.csrf_token(cookie)}, call.sessions.cookie_header(cookie))


async def log_out(call: Call) -> HttpAnswer:
    """Ends the session and its connection."""
    call.sessions.log_out(call.cookie)
    cookie = call.sessions.new_cookie()
    return _told({"csrf_token": call.sessions.csrf_token(cookie)}, call.sessions.cookie_header(cookie))


def _told(value: dict[str, Any], header: tuple[str, str]) -> HttpAnswer:
    return HttpAnswer(200, json.dumps(value).encode() + b"\n", JSON, (header,))


SIGN_IN_ROUTES: Final[tuple[Route, ...]] = (of_console("/login", log_in), of_console("/logout", log_out))
