"""The control port of a server for tests, asked over HTTP: one connection for each look or change."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import h11
import trio

from ....server.config.values import Address
from ..errors import ApiError

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
                raise ValueError(f"an answer of more than {MAX_ANSWER_BYTES:,} bytes")
        return head.status_code, json.loads(answer)

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.receive_some(PIECE_BYTES))
        return event


def _silent(address: Address, error: Exception) -> ApiError:
    why = f"within {ANSWER_S:g} s" if isinstance(error, trio.TooSlowError) else f"({error})"
    return ApiError(503, "NO_CONTROL_PORT", f"the control port {address} does not answer {why}")
