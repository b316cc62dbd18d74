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
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs
import trio

from ....protocol.limits import KIB, MIB
from ....protocol.types import ANONYMOUS, Bytes
from .counters import ProtocolCounters
from .departures import Departures, Left
from .unsent import FREE_BYTES, SEND_TIMEOUT_S, SEND_TIMEOUT_UNDER_PRESSURE_S, UnsentAnswers

LOGGER: Final = logging.getLogger(__name__)

MIN_RECEIVE_BYTES: Final = 64 * KIB
MAX_RECEIVE_BYTES: Final = MIB
"""Of one read. A peer that is not known yet, and everybody while memory is scarce, is read from by MIN_RECEIVE_BYTES."""
COALESCED_BYTES: Final = 64 * KIB
"""Small buffers are joined up to this before they are sent."""
SENT_AT_ONCE_BYTES: Final = MIB
"""Large buffers are sent in pieces: a slow peer that takes one in time is not gone."""
LINGER_S: Final = 1.0
LINGER_BYTES: Final = MIB


def _nothing() -> None:
    """Nobody wants to be told."""


def _never() -> bool:
    return False


@attrs.define(eq=False)
class Transport:
    """Owner of one socket. `receive` belongs to one task, `write` to another; `send` may be called from any."""

    stream: trio.SocketStream
    peer: str
    counters: ProtocolCounters = attrs.field(factory=lambda: ProtocolCounters("-"))
    """Of all connections of its protocol."""
    answers: UnsentAnswers = attrs.field(factory=lambda: UnsentAnswers(MAX_RECEIVE_BYTES * KIB))
    """Where what is not sent yet counts, of all connections of the broker."""
    is_pressed: Callable[[], bool] = _never
    """Whether memory for requests is scarce."""
    most_received_bytes: int = MAX_RECEIVE_BYTES
    departures: Departures | None = None
    became_known: Callable[[], None] = _nothing
    """Called when the peer has shown who it is."""
    progressed: Callable[[], None] = _nothing
    """Called when buffers were sent."""
    broke: Callable[[], None] = _nothing
    """Called when the peer takes no more."""
    send_timeout_s: float = SEND_TIMEOUT_S
    unsent_bytes: int = 0
    _reserved_bytes: int = 0
    """What is being read for an answer."""
    _counted_bytes: int = 0
    """By `answers`."""
    _sending: trio.CancelScope | None = None
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
        if size > MIN_RECEIVE_BYTES and self.is_pressed():
            size = MIN_RECEIVE_BYTES
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
            self._receive_bytes = min(2 * size, self.most_received_bytes)
        elif len(data) < size // 4:
            self._receive_bytes = max(size // 2, MIN_RECEIVE_BYTES)
        return data

    def unread_bytes(self) -> int:
        """How many bytes the kernel holds that nobody has received."""
        descriptor = self.stream.socket.fileno()
        if descriptor < 0:  # closed, while its task has not ended yet
            return 0
        waiting = array("i", [0])
        try:
            fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
        except OSError:
            return 0
        return waiting[0]

    def has_unread_bytes(self) -> bool:
        """Whether there are any."""
        return self.unread_bytes() > 0

    def known(self) -> None:
        """The peer has shown who it is: it is read from in larger pieces, and makes room for nobody."""
        self.most_received_bytes = MAX_RECEIVE_BYTES
        self.became_known()

    @contextlib.contextmanager
    def watching(self, left: Left) -> Iterator[None]:
        """Have `left` called when the peer goes away within the block, in which nobody receives."""
        if self.departures is None:
            yield
            return
        with self.departures.watching(self.stream.socket.fileno(), left):
            yield

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
        if self.unsent_bytes > FREE_BYTES or self._counted_bytes:
            self._count()

    @property
    def is_full(self) -> bool:
        """Whether the peer has left more unread than it may, so that nothing more is read for it."""
        return self.unsent_bytes > FREE_BYTES and self.unsent_bytes > self.answers.most_per_connection

    def reserve(self, wanted: int) -> int:
        """How much of `wanted` may be read for an answer now; `unreserve` when it was read."""
        room = self.answers.room(wanted)
        if room > FREE_BYTES:
            self._reserved_bytes += room
            self._count()
        return room

    def unreserve(self, room: int) -> None:
        """What was read is being sent, or not needed."""
        if room > FREE_BYTES:
            self._reserved_bytes -= room
            self._count()

    def _count(self) -> None:
        counted = max(0, self.unsent_bytes + self._reserved_bytes - FREE_BYTES)
        self.answers.change(counted - self._counted_bytes)
        self._counted_bytes = counted

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
                del piece, data
                if self._counted_bytes:
                    self._count()
                self.progressed()
            if last := self.farewell():
                await self._send_rest(last)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as exc:
            LOGGER.debug("%s took no more answers: %r", self.peer, exc)
            self.forget_unsent()
            self.progressed()
            self.broke()

    async def _send_rest(self, data: Bytes) -> None:
        """Send a piece that the peer did not take at once. Raises TooSlowError when it takes too long, or nothing at all while
        memory is scarce."""
        rest = memoryview(data)
        started = trio.current_time()
        with trio.fail_after(self.send_timeout_s) as self._sending:
            self.answers.wait(self, self._hurry)
            try:
                while rest:
                    self._sending.deadline = started + self.send_timeout_s
                    if self.answers.is_pressed:
                        self._hurry()
                    rest = rest[await self.stream.socket.send(rest) :]
            finally:
                self.answers.done(self)
                rest.release()
        self._sending = None

    def _hurry(self) -> None:
        if self._sending is not None:
            soon = trio.current_time() + SEND_TIMEOUT_UNDER_PRESSURE_S
            self._sending.deadline = min(self._sending.deadline, soon)

    def forget_unsent(self) -> None:
        """The peer takes nothing any more: what waits is let go, and so is what follows."""
        self._peer_is_gone = True
        self._unsent.clear()
        self.unsent_bytes = 0
        self._count()

    def close(self) -> None:
        """The connection has ended: nobody is told any more, and no byte is kept."""
        self._reserved_bytes = 0
        self.forget_unsent()
        self.progressed = self.broke = self.became_known = _nothing

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
