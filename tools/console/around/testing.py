"""A server for tests, worked by hand over its control port: requests with the faults that they met, rules, clock, nodes, life.

The port knows no users. Where the server has some, who may not see its statistics sees nothing of it either, and who may
not alter its configuration changes nothing.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ...client.errors import ConnectionLostError
from ..errors import ApiError, BadParameterError
from ..routes import Call, Route, change, page
from ..watching.watcher import now_ms

if TYPE_CHECKING:
    from .control_port import ControlPort

MAX_REQUESTS: Final = 300
"""Of the last ones that are shown."""
TOLD: Final = ("number", "at_ms", "api", "version", "client_id", "node", "size_bytes", "is_answered", "errors", "fault")


async def testing(call: Call) -> dict[str, Any]:
    """Everything about the server that the port tells."""
    async with await _port(call) as port:
        state, clock = await port.ask("GET", "/"), await port.ask("GET", "/clock")
        faults, disk_faults = await port.ask("GET", "/faults"), await port.ask("GET", "/disk-faults")
        requests = await port.ask("GET", f"/requests?last={MAX_REQUESTS}")
    return {
        "status": call.watcher.status.to_json(),
        "now_ms": now_ms(),
        "state": state,
        "clock": clock,
        "faults": faults,
        "disk_faults": disk_faults,
        "requests": [_request(each) for each in requests],
    }


def _request(told: dict[str, Any]) -> dict[str, Any]:
    about = [f"{topic}-{number}" for topic, numbers in told["topics"].items() for number in numbers or ("*",)]
    return {**{name: told[name] for name in TOLD}, "about": [*about, *told["groups"], *told["transactional_ids"]]}


async def _port(call: Call) -> Any:
    """Raises ApiError for who may not use it, and where there is none."""
    await call.check_sees_statistics()
    if call.settings.control is None:
        raise ApiError(404, "NO_CONTROL_PORT", "this console was started without --control")
    from .control_port import connected  # it needs h11

    return connected(call.settings.control, call.settings.control_token)


async def _check_may_change(call: Call) -> None:
    """A server that is down cannot be asked: its port starts it again, for whoever has seen its statistics."""
    with contextlib.suppress(ConnectionLostError):
        await call.check_may_change()


def _passed(method: str, pattern: str, *, typed: str | None = None) -> Route:
    """A change that the port is told as we are. `typed`: what has to be typed before."""

    async def handler(call: Call) -> Any:
        if typed is not None and call.body.get("confirm") != typed:
            raise ApiError(400, "NOT_CONFIRMED", f'this takes data away: say {{"confirm": "{typed}"}}')
        for name, value in call.path.items():
            if not re.fullmatch("[0-9]{1,9}", value):
                raise BadParameterError(name, f"{value[:100]!r} is no number")
        path = re.sub(r"\{(\w+)\}", lambda match: quote(call.path[match[1]]), pattern)
        body = {name: value for name, value in call.body.items() if name != "confirm"}
        port: ControlPort
        await _check_may_change(call)
        async with await _port(call) as port:
            return await port.ask(method, path, body if method == "POST" else None)

    return change(method, f"/test{pattern}", handler)


ROUTES: Final[tuple[Route, ...]] = (
    page("/test", testing),
    *(
        route
        for rules in ("/faults", "/disk-faults")
        for route in (
            _passed("POST", rules),
            _passed("DELETE", rules),
            _passed("DELETE", f"{rules}/{{number}}"),
            _passed("POST", f"{rules}/{{number}}/release"),
        )
    ),
    _passed("DELETE", "/requests"),
    *(_passed("POST", f"/clock/{what}") for what in ("advance", "freeze", "unfreeze")),
    *(_passed("POST", f"/nodes/{{number}}/{what}") for what in ("up", "down")),
    *(_passed("POST", f"/{what}") for what in ("stop", "restart", "snapshot", "retention")),
    *(_passed("POST", f"/{what}", typed=what) for what in ("crash", "reset")),
)
