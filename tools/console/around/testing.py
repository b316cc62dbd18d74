"""A server for tests, worked by hand over its control port: requests with the faults that they met, rules, clock, nodes, life.
Each check or change is one HTTP connection.

The port knows no users. Where the server has some, who may not see its statistics sees nothing of it either, and who may not
alter its configuration changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

import attrs
import h11
import trio

from ....server.config.values import Address
from ...client.errors import ConnectionLostError
from ..errors import ApiError, BadParameterError
from ..routes import Call, Route, change, page
from ..watching.watcher import now_ms

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
    # it needs h11

    return connected(call.settings.control, call.settings.control_token)


async def _check_may_change(call: Call) -> None:
    """A server that is down cannot be asked: its port starts it again, for whoever has seen its statistics."""
    with contextlib.suppress(ConnectionLostError):
        await call.check_may_change()


def _passed(method: str, pattern: str, *, typed: str | None = None) -> Route:
    """A change that the port is told as we are. `typed`: what has to be typed before."""

    async def handler(call: Call) -> Any:
        if typed is not None and call.body.get("confirm") != typed:
            raise ApiError(400, "NOT_CONFIRMED", f'this deletes data. To confirm, send {{"confirm": "{typed}"}}')
        for name, value in call.path.items():
            if not re.fullmatch("[0-9]{1,9}", value):
                raise BadParameterError(name, f"{value[:100]!r} is not a number")
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


ANSWER_S: Final = 15.0
PIECE_BYTES: Final = 65_536
MAX_ANSWER_BYTES: Final = 16 * 2**20
KEPT: Final = frozenset({400, 404, 408, 409, 422})
"""What the port says of a request is said of ours; what else goes wrong is between it and the console."""


@asynccontextmanager
async def connected(address: Address, token: str | None) -> AsyncIterator[ControlPort]:
    """A connection for the time of the block. Raises ApiError when nobody answers."""
    try:
        with trio.fail_after(ANSWER_S):
            stream = await trio.open_tcp_stream(address.host, address.port)
    except (OSError, trio.TooSlowError) as exc:
        raise _silent(address, exc) from exc
    async with stream:
        yield ControlPort(address, token, stream)


@attrs.define(eq=False, repr=False)
class ControlPort:
    """Owner of a connection."""

    address: Address
    token: str | None = attrs.field(repr=False)
    _stream: trio.SocketStream
    _http: h11.Connection = attrs.field(factory=lambda: h11.Connection(h11.CLIENT))

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the JSON value of its response. Raises ApiError."""
        try:
            with trio.fail_after(ANSWER_S):
                status, told = await self._ask(method, path, b"" if body is None else json.dumps(body).encode())
        except (OSError, trio.TooSlowError, trio.BrokenResourceError, h11.ProtocolError, ValueError) as exc:
            raise _silent(self.address, exc) from exc
        if status == 200:
            return told
        message = str(told.get("message", "")) if isinstance(told, dict) else ""
        if status not in KEPT:
            raise ApiError(502, "CONTROL_PORT_REFUSES", f"the control port {self.address} refuses ({status}): {message}")
        raise ApiError(status, str(told.get("error") or "CONTROL_PORT_SAYS_NO"), message)

    async def _ask(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        http = self._http
        if http.our_state is h11.DONE:
            http.start_next_cycle()
        headers = [("host", str(self.address)), ("content-length", str(len(body))), ("content-type", "application/json")]
        if self.token is not None:
            headers.append(("authorization", f"Bearer {self.token}"))
        events = [h11.Request(method=method, target=path, headers=headers), h11.Data(data=body), h11.EndOfMessage()]
        await self._stream.send_all(b"".join(http.send(event) or b"" for event in events))
        head = await self._next()
        answer = bytearray()
        while isinstance(event := await self._next(), h11.Data):
            answer += event.data
            if len(answer) > MAX_ANSWER_BYTES:
                raise ValueError(f"a response of more than {MAX_ANSWER_BYTES:,} bytes")
        return head.status_code, json.loads(answer)

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.receive_some(PIECE_BYTES))
        return event


def _silent(address: Address, error: Exception) -> ApiError:
    why = f"within {ANSWER_S:g} s" if isinstance(error, trio.TooSlowError) else f"({error})"
    return ApiError(503, "NO_CONTROL_PORT", f"the control port {address} does not respond {why}")
