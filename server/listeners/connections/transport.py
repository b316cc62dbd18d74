"""The socket of one accepted connection, for every protocol: received bytes, and buffers that wait to be sent.

Buffers leave in order, in few system calls: at the end of the turn that sends them, or at once. A task, `write`, sends the rest
that the kernel does not accept. A peer that accepts nothing for SEND_TIMEOUT_S counts as gone.

`UnsentAnswers` is the memory of answers that peers have not taken yet, of all connections of a broker. Up to FREE_BYTES of a
connection are not counted. A fetch takes what it may read before it reads: half of what is left at the most, and FREE_BYTES in
any case, so that peers which never read take the memory of nobody who does. When most of the limit is taken, a connection may
leave less unread, and one that takes nothing is given up sooner.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection
from typing import ClassVar, Final

import attrs
import trio

from ....protocol.limits import KIB, MIB
from ....protocol.types import ANONYMOUS, Bytes
from ...loop.reactor import Reactor
from ...loop.readiness import unread_bytes
from ...loop.turns import Gathering
from .counters import ProtocolCounters

FREE_BYTES: Final = 64 * KIB
MAX_UNSENT_BYTES: Final = 16 * MIB
"""Answers that a peer has not taken; past it no more requests are read from it, and no long poll is answered."""
MAX_UNSENT_UNDER_PRESSURE_BYTES: Final = FREE_BYTES
SEND_TIMEOUT_S: Final = 60.0
"""A peer that does not take a piece for so long is gone."""
SEND_TIMEOUT_UNDER_PRESSURE_S: Final = 5.0
"""A peer that takes nothing at all for so long."""


@attrs.define(eq=False, repr=False)
class UnsentAnswers:
    """The memory of unsent responses of all connections. Owner: the broker's listeners."""

    limit: int
    used: int = 0
    is_pressed: bool = False
    """Whether more than three quarters are taken."""
    _slow: dict[object, Callable[[], None]] = attrs.field(factory=dict)
    """Who waits for its peer to take something, and how to have it wait less."""

    def room(self, wanted: int) -> int:
        """Return the part of `wanted` that a fetch may read."""
        if wanted <= FREE_BYTES:
            return wanted
        return min(wanted, max(FREE_BYTES, (self.limit - self.used) // 2))

    def change(self, size: int) -> None:
        """More, or less, is counted."""
        self.used += size
        was_pressed, self.is_pressed = self.is_pressed, self.used > self.limit // 4 * 3
        if self.is_pressed and not was_pressed:
            for hurry in list(self._slow.values()):
                hurry()

    @property
    def most_per_connection(self) -> int:
        """Return the bytes that a peer may leave unread before the server stops reading from it."""
        return MAX_UNSENT_UNDER_PRESSURE_BYTES if self.is_pressed else MAX_UNSENT_BYTES

    def wait(self, who: object, hurry: Callable[[], None]) -> None:
        """`hurry` is called when memory becomes scarce, until `done`."""
        self._slow[who] = hurry

    def done(self, who: object) -> None:
        self._slow.pop(who, None)


LOGGER: Final = logging.getLogger(__name__)

MIN_RECEIVE_BYTES: Final = 64 * KIB
MAX_RECEIVE_BYTES: Final = MIB
"""Of one read. A peer that is not known yet, and everybody while memory is scarce, is read from by MIN_RECEIVE_BYTES."""
SENT_AT_ONCE_BYTES: Final = MIB + 16 * KIB
"""Of one system call, which copies so much in a quarter of a millisecond: what clients fetch, and what stands around it. Larger
buffers are sent in pieces: a slow peer that takes one in time is not gone."""
SENT_BUFFERS: Final = 64
"""Of one system call."""
ASKED_AGAIN_BYTES: Final = 64 * KIB
"""A kernel that takes so many at once and not all has room for more in the next moment, mostly: the peer reads."""
LINGER_S: Final = 1.0
LINGER_BYTES: Final = MIB


def host_of(peer: str) -> str:
    """The address in `host:port`, an IPv4 one as such."""
    return peer.rpartition(":")[0].removeprefix("::ffff:")


def _nothing() -> None:
    """Nobody wants to be told."""


def _ignore(error: Exception) -> None:
    """Nobody wants to be told."""


def _never() -> bool:
    return False


@attrs.define(eq=False, repr=False)
class Transport:
    """Owner of one socket. `receive` belongs to one task, as does `write`; the rest may be called from any."""

    stream: trio.SocketStream
    peer: str
    counters: ProtocolCounters = attrs.field(factory=lambda: ProtocolCounters("-"))
    """Of all connections of its protocol."""
    answers: UnsentAnswers = attrs.field(factory=lambda: UnsentAnswers(MAX_RECEIVE_BYTES * KIB))
    """Where what is not sent yet counts, of all connections of the broker."""
    encrypts: ClassVar[bool] = False
    """Whether what goes over the wire is not what was given."""
    gathering: Gathering = attrs.field(factory=Gathering)
    """Until the end of whose turn answers wait for others."""
    reactor: Reactor | None = None
    """Who watches the socket for a session."""
    is_pressed: Callable[[], bool] = _never
    """Whether memory for requests is scarce."""
    most_received_bytes: int = MAX_RECEIVE_BYTES
    became_known: Callable[[], None] = _nothing
    """Called when the peer has shown who it is."""
    became_idle: Callable[[], None] = _nothing
    """Called when a connection that makes room while it is idle was answered."""
    progressed: Callable[[], None] = _nothing
    """Called when buffers were sent."""
    broke: Callable[[], None] = _nothing
    """Called when the peer takes no more."""
    failed: Callable[[Exception], None] = _ignore
    """Called with an unhandled exception; the connection is to be ended."""
    needs_writer: Callable[[], None] = _nothing
    """Called when something is left that the kernel did not take: `write` is to be run."""
    send_timeout_s: float = SEND_TIMEOUT_S
    unsent_bytes: int = 0
    _reserved_bytes: int = 0
    """What is being read for an answer."""
    _counted_bytes: int = 0
    """By `answers`."""
    _sending: trio.CancelScope | None = None
    _unsent: list[Bytes] = attrs.field(factory=list)
    _rest: list[memoryview] = attrs.field(factory=list)
    """What the kernel did not take of what it was given, in the form that goes over the wire."""
    _rest_of: int = 0
    """How many bytes it was given, in the form they came."""
    _receive_bytes: int = MIN_RECEIVE_BYTES
    descriptor: int = attrs.field(init=False)
    """Of the socket; -1 when it is not to be used any more: the number may be another file's then."""
    _peer_is_gone: bool = False
    _has_writer: bool = False

    def __attrs_post_init__(self) -> None:
        self.descriptor = self.stream.socket.fileno() if isinstance(self.stream, trio.SocketStream) else -1

    @property
    def principal(self) -> str:
        """Return the principal of the peer, as far as the connection knows it."""
        return ANONYMOUS

    @property
    def host(self) -> str:
        """The peer's address, an IPv4 one as such."""
        return host_of(self.peer)

    # ---- receiving -----------------------------------------------------------------------------------------------------

    async def receive(self) -> bytes:
        """Wait for the peer's bytes and return them, as `read_available`; empty at the end. Raises OSError,
        trio.BrokenResourceError, trio.ClosedResourceError."""
        await trio.lowlevel.checkpoint()
        while (data := self.read_available()) is None:
            await trio.lowlevel.wait_readable(self.stream.socket)
        return data

    def read_available(self) -> bytes | None:
        """Return the peer's bytes, empty at the end, None if none are available. After a read that fills its buffer the next
        one has twice the size. Raises OSError."""
        size = self._receive_bytes
        if size > MIN_RECEIVE_BYTES and self.is_pressed():
            size = MIN_RECEIVE_BYTES
        try:
            data = os.read(self.descriptor, size)
        except BlockingIOError:
            return None
        received = len(data)
        self.counters.received_bytes += received
        if received == size:
            self._receive_bytes = min(2 * size, self.most_received_bytes)
        elif size > MIN_RECEIVE_BYTES and received < size // 4:
            self._receive_bytes = max(size // 2, MIN_RECEIVE_BYTES)
        return data

    def unread_bytes(self) -> int:
        """Return the number of received bytes that the kernel holds unread."""
        return unread_bytes(self.stream.socket.fileno())

    def has_unread_bytes(self) -> bool:
        """Return whether the kernel holds unread bytes."""
        return self.unread_bytes() > 0

    def known(self) -> None:
        """The peer has shown who it is: it is read from in larger pieces, and makes room for nobody."""
        self.most_received_bytes = MAX_RECEIVE_BYTES
        self.became_known()

    # ---- sending -------------------------------------------------------------------------------------------------------

    def send(self, buffers: Collection[Bytes]) -> None:
        """Let buffers follow those that wait; they must not change any more."""
        if self._peer_is_gone:
            return
        self._unsent += buffers
        for buffer in buffers:
            self.unsent_bytes += len(buffer)
        if not self._has_writer:
            gathering = self.gathering
            if gathering.is_open:
                gathering.senders[self] = None
            else:
                self.end_turn()
        if self.unsent_bytes > FREE_BYTES or self._counted_bytes:
            self._count()

    def end_turn(self) -> None:
        """Give the kernel what waits; what it does not take is left to `write`. Raises nothing: the turn is everybody's."""
        if self._has_writer or not self._unsent:
            return
        try:
            while self._send_piece() and self._unsent:
                pass
            if self._rest:
                self._has_writer = True
                self.needs_writer()
            else:
                self.progressed()
        except (OSError, trio.BrokenResourceError) as exc:
            self._break(exc)
        except Exception as exc:
            self.forget_unsent()
            self.failed(exc)

    @property
    def is_full(self) -> bool:
        """Return whether the peer has left more unread than it may, so that the server stops reading for it."""
        return self.unsent_bytes > FREE_BYTES and self.unsent_bytes > self.answers.most_per_connection

    def reserve(self, wanted: int) -> int:
        """Return the part of `wanted` that may be read for a response now. Call `unreserve` when it has been read."""
        room = self.answers.room(wanted)
        if room > FREE_BYTES:
            self._reserved_bytes += room
            self._count()
        return room

    def unreserve(self, room: int) -> None:
        """Release a reservation: the data is being sent, or is not needed."""
        if room > FREE_BYTES:
            self._reserved_bytes -= room
            self._count()

    def _count(self) -> None:
        counted = max(0, self.unsent_bytes + self._reserved_bytes - FREE_BYTES)
        self.answers.change(counted - self._counted_bytes)
        self._counted_bytes = counted

    def _send_piece(self) -> bool:
        """Give the kernel one piece of what waits; False when something of it is left, in `_rest`. Raises OSError,
        trio.BrokenResourceError."""
        unsent = self._unsent
        if (size := self.unsent_bytes) <= SENT_AT_ONCE_BYTES and len(unsent) <= SENT_BUFFERS:
            pieces, self._unsent = unsent, []
        else:
            pieces, size = self._next_pieces()
        data = self.encrypted(pieces) if self.encrypts else pieces
        left: list[Bytes] | list[memoryview] = data
        try:
            sent = os.writev(self.descriptor, left)
            left = _behind(left, sent) if sent < size or self.encrypts else []
            while left and sent >= ASKED_AGAIN_BYTES:
                sent = os.writev(self.descriptor, left)
                left = _behind(left, sent)
        except BlockingIOError:
            """It has no room any more."""
        if left:
            self._rest, self._rest_of = _behind(left, 0), size
            return False
        self.unsent_bytes -= size
        self.counters.sent_bytes += size
        if self._counted_bytes:
            self._count()
        return True

    async def write(self) -> None:
        """Send what waits, and what comes meanwhile."""
        self._has_writer = True
        try:
            while self._rest or self._unsent:
                if self._rest:
                    rest, self._rest = self._rest, []
                    await self._send_rest(rest)
                    del rest
                    self.unsent_bytes -= self._rest_of
                    self.counters.sent_bytes += self._rest_of
                    if self._counted_bytes:
                        self._count()
                elif not self._send_piece():
                    continue
                self.progressed()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as exc:
            self._break(exc)
        finally:
            self._has_writer = False
        self.progressed()

    @property
    def is_open(self) -> bool:
        """Return whether the peer accepts responses, as far as the server knows."""
        return self.descriptor >= 0 and not self._peer_is_gone

    @property
    def is_drained(self) -> bool:
        """Return whether the kernel has accepted everything."""
        return not self._has_writer and not self._unsent

    def _break(self, error: Exception) -> None:
        LOGGER.debug("%s stopped accepting responses: %r", self.peer, error)
        self.forget_unsent()
        self.progressed()
        self.broke()

    async def _send_rest(self, pieces: list[memoryview]) -> None:
        """Send what the peer did not take at once. Raises TooSlowError when it takes too long, or nothing at all while memory
        is scarce."""
        started = trio.current_time()
        with trio.fail_after(self.send_timeout_s) as self._sending:
            self.answers.wait(self, self._hurry)
            try:
                while pieces:
                    self._sending.deadline = started + self.send_timeout_s
                    if self.answers.is_pressed:
                        self._hurry()
                    sent = await self.stream.socket.send(pieces[0])
                    pieces = _behind(pieces, sent)
            finally:
                self.answers.done(self)
        self._sending = None

    def _hurry(self) -> None:
        if self._sending is not None:
            soon = trio.current_time() + SEND_TIMEOUT_UNDER_PRESSURE_S
            self._sending.deadline = min(self._sending.deadline, soon)

    def forget_unsent(self) -> None:
        """The peer takes nothing any more: what waits is let go, and so is what follows."""
        self._peer_is_gone = True
        self._unsent.clear()
        self._rest = []
        self.unsent_bytes = 0
        self._count()

    def close(self) -> None:
        """The connection has ended: nobody is told any more, and no byte is kept."""
        self.descriptor = -1
        self._reserved_bytes = 0
        self.forget_unsent()
        self.progressed = self.broke = self.became_known = self.became_idle = self.needs_writer = _nothing
        self.failed = _ignore

    def encrypted(self, pieces: list[Bytes]) -> list[Bytes]:
        """Pieces as they go over the wire."""
        return pieces

    def farewell(self) -> Bytes:
        """Return the bytes that go over the wire after the last piece."""
        return b""

    def _next_pieces(self) -> tuple[list[Bytes], int]:
        """Return the pieces of one system call and their total size."""
        unsent, size = self._unsent, 0
        pieces = unsent[:SENT_BUFFERS]
        for count, piece in enumerate(pieces):
            if (room := SENT_AT_ONCE_BYTES - size) < len(piece):
                del unsent[:count], pieces[count:]
                if room:
                    view = memoryview(piece)
                    unsent[0] = view[room:]
                    pieces.append(view[:room])
                return pieces, SENT_AT_ONCE_BYTES
            size += len(piece)
        del unsent[: len(pieces)]
        return pieces, size

    # ---- end -----------------------------------------------------------------------------------------------------------

    async def take_leave(self) -> None:
        """Send the last bytes, once all answers are sent. What goes wrong is no matter any more."""
        if (last := self.farewell()) and not self._peer_is_gone:
            with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
                await self._send_rest([memoryview(last)])

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


def _behind(pieces: list[Bytes] | list[memoryview], sent: int) -> list[memoryview]:
    """Return the rest of the pieces after the first `sent` bytes."""
    left = []
    for piece in pieces:
        if sent < len(piece):
            left.append(memoryview(piece)[sent:])
        sent = max(0, sent - len(piece))
    return left
