"""One connection of the native protocol: a task that reads, a task that writes, tasks for what has to wait.

The reading task hands requests over in the order they came, so appends to one partition keep it. It stops reading (the
backpressure that the peer feels) while too many requests or bytes are unanswered, a mailbox is full, or answers pile up
unsent. Answers leave in the order they are ready.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import termios
from array import array
from collections import deque
from typing import Final

import attrs
import trio

from ...protocol.errors import LocalProtocolError, RecordTooLargeError, RemoteProtocolError, RequestError
from ...protocol.limits import KIB, MIB
from ...protocol.native.connection import CONNECTION_CLOSED, NEED_DATA, PAUSED, NativeConnection, Request
from ...protocol.native.fields import Body
from ...protocol.types import Bytes
from .budget import InFlightBudget

LOGGER: Final = logging.getLogger(__name__)

MIN_RECEIVE_BYTES: Final = 64 * KIB
MAX_RECEIVE_BYTES: Final = MIB
COALESCED_BYTES: Final = 64 * KIB
"""Small answers are joined up to this before they are sent."""
SENT_AT_ONCE_BYTES: Final = MIB
"""Large answers are sent in pieces: a slow peer that takes one in time is not gone."""
MAX_UNSENT_BYTES: Final = 16 * MIB
"""Answers that a peer has not taken; past it no more requests are read from it, and no long poll is answered."""
SEND_TIMEOUT_S: Final = 60.0
"""A peer that does not take a piece for so long is gone."""
HELLO_TIMEOUT_S: Final = 10.0
LINGER_S: Final = 1.0
LINGER_BYTES: Final = MIB


@attrs.define(eq=False)
class Session:
    """Owner of one socket and its connection's state. `serve` in `native` gives it its meaning."""

    stream: trio.SocketStream
    connection: NativeConnection
    budget: InFlightBudget
    peer: str
    client_id: str = "-"
    failed: bool = False
    """The peer broke the protocol and was told so in a last error frame."""
    lingers: bool = False
    """Answers were on their way when reading ended, and the peer may have sent more."""
    _unsent: deque[Bytes] = attrs.field(factory=deque)
    _unsent_bytes: int = 0
    _to_send: trio.Event = attrs.field(factory=trio.Event)
    _progress: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    _sizes: dict[int, int] = attrs.field(factory=dict)
    _receive_bytes: int = MIN_RECEIVE_BYTES
    _is_drained: bool = False
    _reading: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _is_waiting_for_request: bool = False
    _takes_no_more: bool = False
    _finished: bool = False
    _peer_is_gone: bool = False

    # ---- answers: called from any task, never wait -------------------------------------------------------------------

    def respond(self, correlation_id: int, error: RequestError | None, body: Body | None) -> None:
        """Answer a request. An answer that is larger than a frame may be becomes an error."""
        if correlation_id not in self._sizes:
            return
        try:
            pieces = self.connection.send_response(correlation_id, error, body)
        except LocalProtocolError as exc:
            too_large = RecordTooLargeError(f"the answer does not fit a frame: {exc}; ask for fewer bytes or partitions")
            pieces = self.connection.send_response(correlation_id, too_large)
        self._settle(correlation_id)
        self._send(pieces)

    def discard(self, correlation_id: int) -> None:
        """The request has no answer."""
        self.connection.discard(correlation_id)
        self._settle(correlation_id)

    def fail(self, error: RequestError | RemoteProtocolError) -> None:
        """Tell the peer in a last error frame why the connection ends, and take no more requests. Unanswered ones stay so."""
        if self.failed:
            return
        self.failed = self.lingers = True
        self.forget_unanswered()
        self._send(self.connection.send_fatal_error(error))
        self.stop_reading()

    def _wake_waiting(self) -> None:
        if self._progress:
            self._progress.unpark_all()

    def _settle(self, correlation_id: int) -> None:
        self.budget.release(self._sizes.pop(correlation_id))
        self._wake_waiting()

    def _send(self, pieces: list[Bytes]) -> None:
        if self._peer_is_gone:
            return
        self._unsent.extend(pieces)
        self._unsent_bytes += sum(map(len, pieces))
        self._to_send.set()

    # ---- reading -------------------------------------------------------------------------------------------------------

    async def next_request(self) -> Request | None:
        """The next request; None when the peer is done, gone, or broke the protocol (it was told then)."""
        if self._takes_no_more:
            return None
        self._is_waiting_for_request = True
        try:
            return await self._receive_request()
        finally:
            self._is_waiting_for_request = False

    async def _receive_request(self) -> Request | None:
        while True:
            if self._unsent_bytes > MAX_UNSENT_BYTES:
                await self.room_to_answer()
            try:
                event = self.connection.next_event()
            except RemoteProtocolError as exc:
                LOGGER.warning("%s (client %s) broke the protocol and is disconnected: %s", self.peer, self.client_id, exc)
                self.fail(exc)
                return None
            if isinstance(event, Request):
                await self.budget.acquire(event.size_bytes)
                self._sizes[event.correlation_id] = event.size_bytes
                return event
            if event is CONNECTION_CLOSED:
                return None
            if event is PAUSED:
                await self._progress.park()
                continue
            assert event is NEED_DATA, event
            try:
                data = await self._receive()
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                return None
            self.connection.receive_data(data)

    async def _receive(self) -> bytes:
        """What the peer sent, empty at its end. A read that fills its buffer is followed by one of twice the size.

        One that does not has emptied the socket: the next one waits for more at once, without asking first.
        """
        size = self._receive_bytes
        data = None
        if self._is_drained:
            await trio.lowlevel.wait_readable(self.stream.socket)
            with contextlib.suppress(BlockingIOError):  # woken for nothing
                data = os.read(self.stream.socket.fileno(), size)
        if data is None:
            data = await self.stream.receive_some(size)
        self._is_drained = len(data) < size
        if not self._is_drained:
            self._receive_bytes = min(2 * size, MAX_RECEIVE_BYTES)
        elif len(data) < size // 4:
            self._receive_bytes = max(size // 2, MIN_RECEIVE_BYTES)
        return data

    async def room_to_answer(self) -> None:
        """Wait while the peer leaves more answers unread than it may."""
        while self._unsent_bytes > MAX_UNSENT_BYTES:
            await self._progress.park()

    @property
    def reading(self) -> trio.CancelScope:
        """Around everything that takes requests and takes them up; see `stop_reading`."""
        return self._reading

    def stop_reading(self) -> None:
        """Take no more requests. The one that is being taken up is not interrupted; what was taken is still answered."""
        if not self._takes_no_more:
            self._takes_no_more = True
            self.lingers = bool(self._sizes or self._unsent_bytes or self._has_unread_bytes())
        if self._is_waiting_for_request:
            self._reading.cancel()

    def _has_unread_bytes(self) -> bool:
        if self.connection.unread_bytes:
            return True
        descriptor = self.stream.socket.fileno()
        if descriptor < 0:  # closed, while its task has not ended yet
            return False
        waiting = array("i", [0])
        try:
            fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
        except OSError:
            return False
        return waiting[0] > 0

    # ---- writing -------------------------------------------------------------------------------------------------------

    async def write(self) -> None:
        """Send answers as they come, until `finish` and nothing is left."""
        try:
            while self._unsent or not self._finished:
                if not self._unsent:
                    self._to_send = trio.Event()
                    await self._to_send.wait()
                    continue
                piece = self._next_piece()
                if (sent := self._send_now(piece)) < len(piece):
                    with trio.fail_after(SEND_TIMEOUT_S):
                        await self.stream.send_all(memoryview(piece)[sent:])
                self._unsent_bytes -= len(piece)
                self._wake_waiting()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as exc:
            LOGGER.debug("%s (client %s) took no more answers: %r", self.peer, self.client_id, exc)
            self._peer_is_gone = True
            self._unsent.clear()
            self._unsent_bytes = 0
            self._wake_waiting()
            self.stop_reading()

    def _send_now(self, piece: Bytes) -> int:
        """Bytes of a small piece that the kernel took at once, which it nearly always does: a deadline and two turns of the
        scheduler cost as much as the answer. What went wrong, `send_all` will say."""
        if len(piece) > COALESCED_BYTES:
            return 0
        try:
            return os.write(self.stream.socket.fileno(), piece)
        except OSError:
            return 0

    def _next_piece(self) -> Bytes:
        piece = self._unsent.popleft()
        if len(piece) > SENT_AT_ONCE_BYTES:
            view = memoryview(piece)
            self._unsent.appendleft(view[SENT_AT_ONCE_BYTES:])
            return view[:SENT_AT_ONCE_BYTES]
        if not self._unsent or len(piece) + len(self._unsent[0]) > COALESCED_BYTES:
            return piece
        parts, size = [piece], len(piece)
        while self._unsent and size + len(self._unsent[0]) <= COALESCED_BYTES:
            part = self._unsent.popleft()
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    # ---- end -----------------------------------------------------------------------------------------------------------

    async def all_answered(self) -> None:
        """Wait until no request is without its answer."""
        while self._sizes:
            await self._progress.park()

    def finish(self) -> None:
        """Let `write` end once everything is sent."""
        self._finished = True
        self._to_send.set()

    async def linger(self) -> None:
        """Let the peer read the last answers, or the last error frame: closing while its bytes are unread would reset the
        connection, and it would lose them. Ends when the peer closes."""
        with trio.move_on_after(LINGER_S):
            try:
                await self.stream.send_eof()
                left = LINGER_BYTES
                while left > 0 and (data := await self.stream.receive_some(MIN_RECEIVE_BYTES)):
                    left -= len(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    def forget_unanswered(self) -> None:
        """Give the bytes of requests back that will not be answered."""
        for size in self._sizes.values():
            self.budget.release(size)
        self._sizes.clear()
