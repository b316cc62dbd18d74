"""HTTP/1.1 for people and programs beside the logs: one function answers, h11 has the protocol (RFC 9110, 9112).

Few connections, small bodies; no TLS, no authentication, no compression: it is for a loopback address or a network of one's
own. h11 comes with the extras that need it, so whoever imports this module does so late.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import attrs
import h11
import trio

from ....protocol.limits import KIB, MIB
from ...settings.broker_config import Address
from ...system.open_files import http_connections
from ..connections.bugs import report_bug
from ..connections.sockets import Admission, Listener, Served
from ..connections.transport import Transport

LOGGER: Final = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 16 * KIB
MAX_BODY_BYTES: Final = MIB
REQUEST_TIMEOUT_S: Final = 30.0
"""For a whole request to come, from the last answer on; then the connection is closed."""
SEND_TIMEOUT_S: Final = 30.0
RECEIVED_BYTES: Final = 16 * KIB
PIECES_PER_TURN: Final = 16
"""Chunks of a body that are read before others have their turn: each takes 20 us, and may be a single byte."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class HttpRequest(NamedTuple):
    """`path` and `query` are as they came, without the `?` between them. `headers` have names in small letters."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


class HttpAnswer(NamedTuple):
    """What is sent back."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def text(cls, status: int, text: str) -> HttpAnswer:
        """One or more lines for people."""
        return cls(status, f"{text}\n".encode())

    @classmethod
    def json(cls, status: int, value: Any) -> HttpAnswer:
        """A document for programs."""
        return cls(status, json.dumps(value).encode() + b"\n", JSON)


Answer = Callable[[HttpRequest], Awaitable[HttpAnswer]]
"""Answers a request. What it raises is logged, and the peer gets 500."""


def http_listener(address: Address, answer: Answer, *, max_body_bytes: int = MAX_BODY_BYTES) -> Listener:
    """HTTP on one address, with connections of its own: clients of the log cannot take their places. Further ones wait to be
    accepted."""
    connections = http_connections()

    def open_session(transport: Transport) -> Served:
        transport.known()
        session = HttpSession(transport, answer, max_body_bytes)
        return Served(session.serve, session.stop_reading)

    return Listener(address, Admission.with_limits(connections, connections * MIB), open_session, "http")


class _TooLargeError(Exception):
    """A body is larger than it may be."""


@attrs.define(eq=False)
class HttpSession:
    """One connection: requests one after the other. Owner: the task of `serve`."""

    transport: Transport
    answer: Answer
    max_body_bytes: int = MAX_BODY_BYTES
    _connection: h11.Connection = attrs.field(
        factory=partial(h11.Connection, h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    )
    _reading: trio.CancelScope | None = None
    _takes_no_more: bool = False

    async def serve(self) -> None:
        """Serve the connection to its end."""
        try:
            async with self.transport.stream:
                while (request := await self._next_request()) is not None:
                    await self._send(await self._answer(request), is_head=request.method == "HEAD")
                    if self._takes_no_more or self._connection.our_state is not h11.DONE:
                        break
                    if self._connection.their_state is not h11.DONE:
                        break
                    self._connection.start_next_cycle()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as exc:
            LOGGER.debug("%s is gone: %r", self.transport.peer, exc)

    def stop_reading(self) -> None:
        """Take no more requests; the one that is being answered is not interrupted."""
        self._takes_no_more = True
        if self._reading is not None:
            self._reading.cancel()

    # ---- a request -----------------------------------------------------------------------------------------------------

    async def _next_request(self) -> HttpRequest | None:
        """None when there is none: the peer is done, too slow, or was told what is wrong with it."""
        refusal = None
        with trio.move_on_after(REQUEST_TIMEOUT_S) as self._reading:
            if self._takes_no_more:
                return None
            try:
                return await self._receive_request()
            except _TooLargeError:
                refusal = HttpAnswer.text(413, f"a body of more than {self.max_body_bytes} bytes is not taken")
            except h11.RemoteProtocolError as exc:
                refusal = HttpAnswer.text(exc.error_status_hint, f"the request is not HTTP: {exc}")
            finally:
                self._reading = None
        if refusal is not None and self._connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send(refusal, closes=True)
            await self.transport.linger()
        return None

    async def _receive_request(self) -> HttpRequest | None:
        head = await self._next_event()
        if not isinstance(head, h11.Request):
            return None
        if self._connection.they_are_waiting_for_100_continue:
            await self._send_event(h11.InformationalResponse(status_code=100, headers=[]))
        body, pieces = bytearray(), 0
        while isinstance(event := await self._next_event(), h11.Data):
            if len(body) + len(event.data) > self.max_body_bytes:
                raise _TooLargeError
            body += event.data
            pieces += 1
            if not pieces % PIECES_PER_TURN:
                await trio.lowlevel.checkpoint()
        if not isinstance(event, h11.EndOfMessage):
            return None
        path, _, query = head.target.decode("latin-1").partition("?")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return HttpRequest(head.method.decode("latin-1"), path, query, headers, bytes(body))

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._connection.next_event()
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]
            self._connection.receive_data(await self.transport.stream.receive_some(RECEIVED_BYTES))

    # ---- its answer ----------------------------------------------------------------------------------------------------

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        try:
            return await self.answer(request)
        except Exception as exc:
            report_bug(self.transport.counters, f"{request.method} {request.path} of {self.transport.peer}", exc)
            return HttpAnswer.text(500, "the request met a bug of the server; its log says which")

    async def _send(self, answer: HttpAnswer, *, is_head: bool = False, closes: bool = False) -> None:
        headers = [
            ("content-type", answer.content_type),
            ("content-length", str(len(answer.body))),
            *answer.headers,
            *([("connection", "close")] if closes or self._takes_no_more else []),
        ]
        reason = HTTPStatus(answer.status).phrase.encode()
        await self._send_event(h11.Response(status_code=answer.status, headers=headers, reason=reason))
        if answer.body and not is_head:
            await self._send_event(h11.Data(data=answer.body))
        await self._send_event(h11.EndOfMessage())

    async def _send_event(self, event: h11.Event) -> None:
        data = self._connection.send(event)
        if data:
            with trio.fail_after(SEND_TIMEOUT_S):
                await self.transport.stream.send_all(data)
