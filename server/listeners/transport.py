"""One accepted connection's socket, whatever protocol it speaks: bytes as they come, and buffers that wait to be sent.

What is sent leaves in order, small buffers joined. A peer that takes nothing for SEND_TIMEOUT_S is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import termios
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import attrs
import trio

from ...protocol.limits import KIB, MIB
from ...protocol.types import ANONYMOUS, Bytes
from .counters import ProtocolCounters

LOGGER: Final = logging.getLogger(__name__)

MIN_RECEIVE_BYTES: Final = 64 * KIB
MAX_RECEIVE_BYTES: Final = MIB
COALESCED_BYTES: Final = 64 * KIB
"""Small buffers are joined up to this before they are sent."""
SENT_AT_ONCE_BYTES: Final = MIB
"""Large buffers are sent in pieces: a slow peer that takes one in time is not gone."""
SEND_TIMEOUT_S: Final = 60.0
"""A peer that does not take a piece for so long is gone."""
LINGER_S: Final = 1.0
LINGER_BYTES: Final = MIB


@attrs.define(eq=False)
class Transport:
    """Owner of one socket. `receive` belongs to one task, `write` to another; `send` may be called from any."""

    stream: trio.SocketStream
    peer: str
    counters: ProtocolCounters = attrs.field(factory=lambda: ProtocolCounters("-"))
    """Of all connections of its protocol."""
    progressed: Callable[[], None] = lambda: None
    """Called when buffers were sent."""
    broke: Callable[[], None] = lambda: None
    """Called when the peer takes no more."""
    send_timeout_s: float = SEND_TIMEOUT_S
    unsent_bytes: int = 0
    _unsent: deque[Bytes] = attrs.field(factory=deque)
    _to_send: trio.Event = attrs.field(factory=trio.Event)
    _receive_bytes: int = MIN_RECEIVE_BYTES
    _is_drained: bool = False
    _finished: bool = False
    _peer_is_gone: bool = False
    _is_idle: bool = False
    """Whether `write` waits for something to send."""

    @property
    def principal(self) -> str:
        """Who the peer is, as far as the connection says."""
        return ANONYMOUS

    @property
    def sends_plainly(self) -> bool:
        """Whether the buffers themselves go over the wire."""
        return True

    @property
    def host(self) -> str:
        """The peer's address, an IPv4 one as such."""
        return self.peer.rpartition(":")[0].removeprefix("::ffff:")

    # ---- receiving -----------------------------------------------------------------------------------------------------

    async def receive(self) -> bytes:
        """What the peer sent, empty at its end. A read that fills its buffer is followed by one of twice the size.

        One that does not has emptied the socket: the next one waits for more at once, without asking first. Raises OSError,
        trio.BrokenResourceError, trio.ClosedResourceError.
        """
        size = self._receive_bytes
        data = None
        if self._is_drained:
            await trio.lowlevel.wait_readable(self.stream.socket)
            with contextlib.suppress(BlockingIOError):  # woken for nothing
                data = os.read(self.stream.socket.fileno(), size)
        if data is None:
            data = await self.stream.receive_some(size)
        self.counters.received_bytes += len(data)
        self._is_drained = len(data) < size
        if not self._is_drained:
            self._receive_bytes = min(2 * size, MAX_RECEIVE_BYTES)
        elif len(data) < size // 4:
            self._receive_bytes = max(size // 2, MIN_RECEIVE_BYTES)
        return data

    def has_unread_bytes(self) -> bool:
        """Whether the kernel holds bytes that nobody has received."""
        descriptor = self.stream.socket.fileno()
        if descriptor < 0:  # closed, while its task has not ended yet
            return False
        waiting = array("i", [0])
        try:
            fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
        except OSError:
            return False
        return waiting[0] > 0

    # ---- sending -------------------------------------------------------------------------------------------------------

    def send(self, buffers: Iterable[Bytes], *, at_once: bool = False) -> None:
        """Let buffers follow those that wait; they must not change any more. `at_once`: none follow soon, so a small answer
        leaves now; a turn of `write` costs more than sending it."""
        if self._peer_is_gone:
            return
        for buffer in buffers:
            self._unsent.append(buffer)
            self.unsent_bytes += len(buffer)
        if not (at_once and self._is_idle and self._unsent and self._send_first()):
            self._to_send.set()

    def _send_first(self) -> bool:
        """Send a small piece of what waits; False when something is left for `write`."""
        piece = self._next_piece()
        sent = self._send_now(piece)
        self.unsent_bytes -= sent
        self.counters.sent_bytes += sent
        if sent < len(piece):
            self._unsent.appendleft(memoryview(piece)[sent:])
        return not self._unsent

    async def write(self) -> None:
        """Send buffers as they come, until `finish` and nothing is left."""
        try:
            while self._unsent or not self._finished:
                if not self._unsent:
                    self._to_send = trio.Event()
                    self._is_idle = self.sends_plainly
                    await self._to_send.wait()
                    self._is_idle = False
                    continue
                piece = self._next_piece()
                data = self.encrypted(piece)
                if (sent := self._send_now(data)) < len(data):
                    await self._send_rest(memoryview(data)[sent:])
                self.unsent_bytes -= len(piece)
                self.counters.sent_bytes += len(piece)
                self.progressed()
            if last := self.farewell():
                await self._send_rest(last)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as exc:
            LOGGER.debug("%s took no more answers: %r", self.peer, exc)
            self._peer_is_gone = True
            self._unsent.clear()
            self.unsent_bytes = 0
            self.progressed()
            self.broke()

    async def _send_rest(self, data: Bytes) -> None:
        with trio.fail_after(self.send_timeout_s):
            await self.stream.send_all(data)

    def encrypted(self, piece: Bytes) -> Bytes:
        """A piece as it goes over the wire."""
        return piece

    def farewell(self) -> Bytes:
        """What goes over the wire behind the last piece."""
        return b""

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

    def finish(self) -> None:
        """Let `write` end once everything is sent."""
        self._finished = True
        self._to_send.set()

    async def linger(self) -> None:
        """Let the peer read the last answers: closing while its bytes are unread would reset the connection, and it would
        lose them. Ends when the peer closes."""
        with trio.move_on_after(LINGER_S):
            try:
                await self.stream.send_eof()
                left = LINGER_BYTES
                while left > 0 and (data := await self.stream.receive_some(MIN_RECEIVE_BYTES)):
                    left -= len(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
