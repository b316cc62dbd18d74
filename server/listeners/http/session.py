"""A session that speaks HTTP/1.1: one function responds, h11 implements the protocol (RFC 9110, 9112).

It supports small bodies, and streams of pieces that continue until the peer closes; no TLS, no compression. It knows a stream
and its peer's name, and neither listeners nor a broker, so that other processes can serve with it, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Final

import attrs
import h11
import trio

from ....protocol.limits import KIB, MIB
from .access import Answer, HttpAnswer, HttpRefusalError, HttpRequest, Stream

LOGGER: Final = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 16 * KIB
MAX_BODY_BYTES: Final = MIB
REQUEST_TIMEOUT_S: Final = 30.0
"""For a whole request to come, from the last answer on; then the connection is closed."""
SEND_TIMEOUT_S: Final = 30.0
RECEIVED_BYTES: Final = 16 * KIB
PIECES_PER_TURN: Final = 16
"""Chunks of a body that are read before others have their turn: each takes 20 us, and may be a single byte."""
LINGER_S: Final = 1.0
LINGER_BYTES: Final = MIB

ReportBug = Callable[[str, Exception], None]
"""Is told what met a bug, and what was raised."""
_GONE: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)


class _TooLargeError(Exception):
    """A body is larger than it may be."""


def _nothing() -> None:
    """Nobody wants to know."""


@attrs.define(eq=False, repr=False)
class HttpSession:
    """A connection that serves its requests one after the other. Owner: the task of `serve`."""

    stream: trio.abc.HalfCloseableStream
    peer: str
    answer: Answer
    report_bug: ReportBug
    max_body_bytes: int = MAX_BODY_BYTES
    too_large: HttpAnswer | None = None
    """The response to a body above the limit, if it is not the usual one."""
    leaves_bodies: bool = False
    """Whether `answer` gets requests before their bodies, and receives those itself."""
    became_busy: Callable[[], None] = _nothing
    """Called when a whole request has come."""
    became_idle: Callable[[], None] = _nothing
    """Called when the kernel has an answer, or as much of it as it takes at once, and when a piece of a stream is there to be
    sent."""
    _connection: h11.Connection = attrs.field(
        factory=partial(h11.Connection, h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    )
    _reading: trio.CancelScope | None = None
    _streaming: trio.CancelScope | None = None
    _takes_no_more: bool = False
    _pieces: int = 0

    async def serve(self) -> None:
        """Serve the connection to its end."""
        try:
            async with self.stream:
                while (request := await self._next_request()) is not None:
                    answer = await self._answer(request)
                    if answer.stream is not None and request.method != "HEAD":
                        self.became_idle()
                        await self._send_stream(request, answer, answer.stream)
                    else:
                        leaves = self._leaves_body()
                        await self._send(answer, self.became_idle, is_head=request.method == "HEAD", closes=leaves)
                        if leaves:
                            await _linger(self.stream)
                    if self._takes_no_more or self._connection.our_state is not h11.DONE:
                        break
                    if self._connection.their_state is not h11.DONE:
                        break
                    self._connection.start_next_cycle()
        except _GONE as exc:
            LOGGER.debug("%s disconnected: %r", self.peer, exc)

    def stop_reading(self) -> None:
        """Take no more requests. The one that is being answered is not interrupted, but for a stream, which ends."""
        self._takes_no_more = True
        for scope in (self._reading, self._streaming):
            if scope is not None:
                scope.cancel()

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
                usual = HttpAnswer.text(413, f"a body of more than {self.max_body_bytes} bytes is not taken")
                refusal = self.too_large or usual
            except h11.RemoteProtocolError as exc:
                refusal = HttpAnswer.text(exc.error_status_hint, f"the request is not HTTP: {exc}")
            finally:
                self._reading = None
        if refusal is not None and self._connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send(refusal, closes=True)
            await _linger(self.stream)
        return None

    async def _receive_request(self) -> HttpRequest | None:
        head = await self._next_event()
        if not isinstance(head, h11.Request):
            return None
        body, receive = bytearray(), self.receive
        if not self.leaves_bodies:
            while piece := await self._next_piece():
                if len(body) + len(piece) > self.max_body_bytes:
                    raise _TooLargeError
                body += piece
        path, _, query = head.target.decode("latin-1").partition("?")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return HttpRequest(head.method.decode("latin-1"), path, query, headers, bytes(body), self.peer, receive)

    async def _next_piece(self) -> bytes:
        """Return the next bytes of a body, empty at its end."""
        if self._connection.they_are_waiting_for_100_continue:
            await self._send_event(h11.InformationalResponse(status_code=100, headers=[]))
        self._pieces += 1
        if not self._pieces % PIECES_PER_TURN:
            await trio.lowlevel.checkpoint()
        while True:
            event = await self._next_event()
            if not isinstance(event, h11.Data):
                return b""
            if event.data:
                return bytes(event.data)

    async def receive(self) -> bytes:
        """Return the next bytes of a body, empty at its end. Raises HttpRefusalError when no whole body comes."""
        with trio.move_on_after(REQUEST_TIMEOUT_S) as self._reading:
            try:
                if self._takes_no_more:
                    self._reading.cancel()
                return await self._next_piece()
            except (h11.RemoteProtocolError, *_GONE) as exc:
                raise HttpRefusalError(400, f"the body ended early: {exc}") from exc
            finally:
                self._reading = None
        if self._takes_no_more:
            raise HttpRefusalError(503, "the server stops, or gives up the request for want of memory")
        raise HttpRefusalError(408, f"no byte of the body came for {REQUEST_TIMEOUT_S:g} s")

    def _leaves_body(self) -> bool:
        """Return whether more of the body is to come after what was received, which is dropped."""
        with contextlib.suppress(h11.RemoteProtocolError):
            while self._connection.their_state is h11.SEND_BODY:
                if self._connection.next_event() is h11.NEED_DATA:
                    break
        return self._connection.their_state in (h11.SEND_BODY, h11.ERROR)

    async def pause(self, seconds: float) -> None:
        """Wait, but no longer than requests are taken."""
        with trio.move_on_after(seconds) as self._reading:
            if not self._takes_no_more:
                await trio.sleep_forever()
        self._reading = None

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._connection.next_event()
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]
            self._connection.receive_data(bytes(await self.stream.receive_some(RECEIVED_BYTES)))

    # ---- its answer ----------------------------------------------------------------------------------------------------

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        self.became_busy()
        try:
            return await self.answer(request)
        except Exception as exc:
            self.report_bug(f"{request.method} {request.path} of {self.peer}", exc)
            return HttpAnswer.text(500, "unhandled exception in the server. See its log")

    async def _send(
        self, answer: HttpAnswer, taken: Callable[[], None] = _nothing, *, is_head: bool = False, closes: bool = False
    ) -> None:
        """`taken` is called when the kernel has what it takes at once, before anything else has its turn: who makes room for
        another connection from then on has sent its answer, unless the peer reads none."""
        length = [] if answer.stream is not None else [("content-length", str(len(answer.body)))]
        events: list[h11.Event] = [self._head(answer, length, closes=closes or self._takes_no_more)]
        if answer.body and not is_head:
            events.append(h11.Data(data=answer.body))
        events.append(h11.EndOfMessage())
        data = b"".join(self._connection.send(event) or b"" for event in events)
        try:
            left = memoryview(data)[self._try_send(data) :]
        finally:
            taken()
        await self._send_bytes(left)

    def _try_send(self, data: bytes) -> int:
        """Answers how many bytes the kernel takes at once. Raises OSError."""
        if not isinstance(self.stream, trio.SocketStream):
            return 0
        try:
            return os.write(self.stream.socket.fileno(), data)
        except BlockingIOError:
            return 0

    def _head(self, answer: HttpAnswer, headers: list[tuple[str, str]], *, closes: bool) -> h11.Response:
        headers = [
            ("content-type", answer.content_type),
            *headers,
            *answer.headers,
            *([("connection", "close")] if closes else []),
        ]
        reason = HTTPStatus(answer.status).phrase.encode()
        return h11.Response(status_code=answer.status, headers=headers, reason=reason)

    async def _send_stream(self, request: HttpRequest, answer: HttpAnswer, stream: Stream) -> None:
        """Send what a stream has, while somebody looks whether the peer is still there. The connection closes afterwards: an
        end in the middle must not look like a whole body."""
        await self._send_event(self._head(answer, [("transfer-encoding", "chunked")], closes=True))
        is_whole = False
        async with trio.open_nursery() as nursery:
            self._streaming = nursery.cancel_scope
            if self._takes_no_more:
                nursery.cancel_scope.cancel()
            nursery.start_soon(self._watch_peer, nursery.cancel_scope)
            try:
                await stream(self._send_piece)
            except Exception as exc:
                if not _is_of_peer(exc):
                    self.report_bug(f"{request.method} {request.path} of {self.peer}", exc)
            else:
                is_whole = True
            nursery.cancel_scope.cancel()
        self._streaming = None
        self._takes_no_more = True
        if is_whole:
            await self._send_event(h11.EndOfMessage())

    async def _send_piece(self, piece: bytes) -> None:
        if piece:
            self.became_idle()
            await self._send_event(h11.Data(data=piece))

    async def _watch_peer(self, scope: trio.CancelScope) -> None:
        """Whatever it sends, its end among that, ends the stream: nothing more was to come from it."""
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            await self.stream.receive_some(RECEIVED_BYTES)
        scope.cancel()

    async def _send_event(self, event: h11.Event) -> None:
        await self._send_bytes(self._connection.send(event) or b"")

    async def _send_bytes(self, data: bytes | memoryview) -> None:
        if data:
            with trio.fail_after(SEND_TIMEOUT_S):
                await self.stream.send_all(data)


def _is_of_peer(error: Exception) -> bool:
    """Return whether the error means only that the peer is gone."""
    if isinstance(error, ExceptionGroup):
        return all(_is_of_peer(each) for each in error.exceptions)
    return isinstance(error, _GONE)


async def _linger(stream: trio.abc.HalfCloseableStream) -> None:
    """Let the peer read the last answer: closing while its bytes are unread would reset the connection, and it would lose
    that. Ends when the peer closes."""
    with trio.move_on_after(LINGER_S):
        try:
            await stream.send_eof()
            left = LINGER_BYTES
            while left > 0 and (data := await stream.receive_some(RECEIVED_BYTES)):
                left -= len(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
