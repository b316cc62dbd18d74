"""The session of a connection, for every protocol: it receives bytes, starts requests in order of arrival, and sends responses.

None of this needs a task: the session receives bytes and starts requests in the reactor's turn. A blocked request continues in
the turn that removes the obstacle, for example the turn of an actor that responds. The connection has one task, `serve`. It
waits for the obstacles of requests, one at a time, and for deadlines. Meanwhile later requests and the reading stop, which is
the backpressure that the peer feels.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, Protocol, TypeVar

import attrs
import trio

from ....protocol.types import ANONYMOUS, Bytes
from ...loop.reactor import ConnectionTask, Deadlines, Reactor, Work
from ...system.client_memory import PAYER, Payer, new_payer
from .budget import FREE_BYTES, InFlightBudget, Share
from .counters import STALLED, cut
from .states import (
    CLOSE,
    DRAINING,
    HELD,
    HOLD,
    LINGER,
    MUTE,
    READING,
    RESUME,
    STOP,
    TRANSITIONS,
    UNMUTE,
    WORK,
    WORKED,
    State,
)
from .transport import Transport

LOGGER: Final = logging.getLogger(__name__)

REQUESTS_PER_TURN: Final = 4
"""Requests of one connection that are served before others have their turn: with lookups about 0.3 ms. A peer that sends 64 at
once would otherwise hold everything up for as long as all of them take."""
IDLE_TIMEOUT_S: Final = 600.0
"""A connection without a request for so long is closed (Kafka: connections.max.idle.ms)."""
NOT_SAID: Final = "-"
"""What clients have not said of themselves yet."""
USER_PREFIX: Final = "User:"
"""Of principals that are users."""
IDLE_CHECKS: Final = 10
"""How often within that time it is looked at: a deadline that every request moves would cost more than the request's header."""


class Received(Protocol):
    """The parser that splits received bytes into requests."""

    end_received: bool

    @property
    def can_receive_more(self) -> bool:
        """Return whether the protocol accepts more requests now."""

    @property
    def unread_bytes(self) -> int: ...
    @property
    def missing_bytes(self) -> int: ...
    def receive_data(self, data: Bytes) -> int: ...
    def drop(self) -> int: ...


RequestT = TypeVar("RequestT")


@attrs.define(eq=False, repr=False, kw_only=True)
class Session(ABC, Generic[RequestT]):
    """Owner of one connection's state. A protocol says what a request is and how it is taken up."""

    transport: Transport
    connection: Received
    budget: InFlightBudget
    idle_timeout_s: float = IDLE_TIMEOUT_S
    client_id: str = NOT_SAID
    software: str = NOT_SAID
    """Name and version of the client's library, as it says."""
    principal: str = attrs.field(init=False)
    """Who the peer is."""
    user: str = attrs.field(init=False)
    """The same, as quotas name him."""
    share: Share = attrs.field(init=False)
    reactor: Reactor = attrs.field(init=False)
    """Who watches its socket."""
    descriptor: int = attrs.field(init=False)
    """Of its socket."""
    taken_count: int = 0
    """Requests that were taken up."""
    lingers: bool = False
    """Answers were on their way when reading ended, and the peer may have sent more."""
    nursery: trio.Nursery = attrs.field(init=False)
    """For what goes on beside the requests. All of it is cancelled when they are answered."""
    task: ConnectionTask = attrs.field(factory=ConnectionTask)
    state: State = READING
    """Changed by `TRANSITIONS` alone."""
    deadlines: Deadlines = attrs.field(init=False)
    """Of requests that have a timeout."""
    client: Payer | None = None
    """Who pays for what is kept; None until `known_client` is asked."""
    muted_until: float = 0.0
    """In trio's time; nothing more is received or taken up before, because its peer is above a quota. 0: it may be."""
    protocol_broken: Callable[[str], None] | None = None
    """Called with the reason when the connection ends for bytes that are not a request."""
    _held_up: RequestT | None = None
    """A request that cannot be taken up yet."""
    _has_more: bool = False
    """Whether requests are left that others' turn comes before."""
    _is_awaited: bool = False
    """Whether the task is to go on with them, not the reactor."""
    _is_going: bool = False
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Around everything that it waits for."""
    _error: Exception | None = None
    """What nobody expected; raised in the task."""
    _has_left: bool | None = None
    """Whether the peer is gone altogether; None: it is there as far as is known."""
    _watching: int = 0
    _progress: trio.Event | None = None
    """Set, and forgotten, when something was answered or sent."""

    def __attrs_post_init__(self) -> None:
        assert self.transport.reactor is not None
        self.known_as(self.transport.principal)
        self.reactor = self.transport.reactor
        self.deadlines = self.reactor.deadlines
        self.descriptor = self.transport.descriptor
        self.transport.progressed = self.go_on
        self.transport.broke = self.stop_reading
        self.transport.failed = self.end_with
        self.transport.needs_writer = self._start_writer
        self.share = self.budget.open_share()
        self.share.payer, self.share.give_up = self._payer, self._give_up
        self.share.unread_bytes = self._unread_bytes

    # ---- what a protocol says ------------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self) -> None:
        """The connection's task runs."""

    @abstractmethod
    def next_request(self) -> RequestT | None:
        """The next request; None where there is none, or work to be done first (`work_on`), or the reading has ended."""

    @abstractmethod
    def take(self, request: RequestT) -> bool:
        """Take a request up. False: it cannot start now, and waits for `go_on`. Expected errors are answers; work that it waits
        for is given to `work_on`."""

    @abstractmethod
    def let_go(self, request: RequestT) -> None:
        """A request that was held up is not taken up any more."""

    @abstractmethod
    async def end(self) -> None:
        """No request is taken any more: wait until those that were are answered."""

    @abstractmethod
    def forget(self) -> None:
        """The connection has ended. Keep nothing."""

    @abstractmethod
    def peer_left(self, is_gone: bool) -> None:
        """Nobody reads, and the peer sends no more; unless it is gone it may still read."""

    @abstractmethod
    def end_stalled(self, why: str) -> None:
        """End the connection: its frame keeps memory that others wait for."""

    @property
    @abstractmethod
    def requests_in_flight(self) -> int:
        """Return the number of requests in progress."""

    @property
    def has_unanswered(self) -> bool:
        """Return whether a request is in progress."""
        return self.requests_in_flight > 0

    def known_as(self, principal: str) -> None:
        """Set the principal that the peer has logged in as."""
        self.principal, self.user = principal, principal.removeprefix(USER_PREFIX)
        self.client = None

    def pay(self) -> None:
        """Let this client pay for the memory that its requests make the server keep, in this task from now on."""
        PAYER.set(self.client or self.known_client())

    def known_client(self) -> Payer:
        """Return the payer of the client as it is known now."""
        if self.client is None:
            self.client = new_payer(self._payer())
        return self.client

    # ---- the budget ----------------------------------------------------------------------------------------------------

    def _payer(self) -> str:
        return self.transport.host if self.principal == ANONYMOUS else self.principal

    def _unread_bytes(self) -> int:
        return self.connection.unread_bytes

    def _give_up(self, why: str) -> None:
        self.transport.counters.end(STALLED)
        self.end_stalled(why)

    def give_back(self, size: int) -> None:
        """Bytes of requests are not kept any longer."""
        self.share.held -= size
        if self.share.accounts:
            self.share.give_back()

    @property
    def peer(self) -> str:
        return self.transport.peer

    # ---- the task ------------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serve the connection to its end. Cancelled: what is enqueued still happens, its answers are lost."""
        transport = self.transport
        self.pay()
        try:
            async with transport.stream:
                try:
                    with self._scope:
                        await self._serve()
                    if self._error is not None:
                        raise self._error
                    await transport.take_leave()
                finally:
                    self.reactor.remove(self)
                if self.lingers:
                    self.state = TRANSITIONS[self.state][LINGER]
                    await transport.linger()
        finally:
            self.state = TRANSITIONS[self.state][CLOSE]  # what lies behind a request that was cancelled is dropped
            self.forget()
            self.task.forget()
            self._held_up = None
            self.connection.drop()
            self.share.close()
            transport.close()

    async def _serve(self) -> None:
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            self.begin()
            self.reactor.add(self)
            self.on_bytes()  # what came with a handshake of TLS is not on the socket any more
            await self._attend()
            self._drop_unread()
            await self.end()
            while not self.transport.is_drained:
                await self.progress()
            nursery.cancel_scope.cancel()
        del self.nursery

    async def _attend(self) -> None:
        """Do what the requests wait for, until no more are taken."""
        looks_at, looks, seen = trio.current_time() + self.idle_timeout_s / IDLE_CHECKS, 0, self.taken_count
        task, taken = self.task, self.taken_count
        while True:
            if task.work is not None:
                await task.do_work()
                self.state = TRANSITIONS[self.state][WORKED]
                if self.muted_until:
                    self.state = TRANSITIONS[self.state][MUTE]
                if self.taken_count - taken >= REQUESTS_PER_TURN:
                    await trio.lowlevel.checkpoint()
                    taken = self.taken_count
            elif self.state == DRAINING:
                return
            elif self._has_more and self._is_awaited:
                await trio.lowlevel.checkpoint()
                self._has_more = self._is_awaited = False
                taken = self.taken_count
            else:
                now = await task.rest(looks_at)
                taken = self.taken_count
                if now >= looks_at:
                    looks = looks + 1 if self.taken_count == seen and not self.is_busy else 0
                    looks_at, seen = now + self.idle_timeout_s / IDLE_CHECKS, self.taken_count
                    if looks == IDLE_CHECKS:
                        self.end_idle()
            with self.transport.gathering:
                self.go_on(taken + REQUESTS_PER_TURN - self.taken_count)

    def mute(self, seconds: float) -> None:
        """Receive nothing and take nothing up for so long; what was taken up is answered. At most as long as a peer may be
        idle: nobody reads from it, so that nobody would hear that it is gone."""
        until = trio.current_time() + min(seconds, self.idle_timeout_s)
        self.muted_until = max(until, self.muted_until)
        self.state = TRANSITIONS[self.state][MUTE]
        self.share.is_receiving = False
        self.task.ring_at(until, self._unmute)
        self.task.wake()

    def _unmute(self) -> None:
        if self.muted_until and trio.current_time() >= self.muted_until:
            self.muted_until = 0.0
            self.state = TRANSITIONS[self.state][UNMUTE]

    @property
    def is_busy(self) -> bool:
        """Return whether a request is in progress, so that silence does not count as idle time."""
        return self.has_unanswered or self.state != READING

    def end_idle(self) -> None:
        """End the connection of a peer that has asked for nothing for too long."""
        LOGGER.debug("%s (client %s) disconnected: idle for %g s", self.peer, cut(self.client_id), self.idle_timeout_s)
        self.stop_reading()

    def _start_writer(self) -> None:
        self.nursery.start_soon(self.transport.write)

    # ---- reading -------------------------------------------------------------------------------------------------------

    def on_bytes(self) -> None:
        """Receive what there is, and take up what is whole. Raises nothing."""
        try:
            try:
                data = self.transport.read_available()
            except (OSError, trio.BrokenResourceError):
                self.end_reading()
                return
            if data is None:
                return
            share = self.share
            share.held += self.connection.receive_data(data)
            if share.held > FREE_BYTES and not share.try_charge():
                self.work_on(self._charge, ends_with_reading=True)
            self._go_on()
        except Exception as exc:
            self.end_with(exc)

    async def _charge(self) -> None:
        with self.watching():
            await self.share.charge()

    def go_on(self, limit: int = REQUESTS_PER_TURN) -> None:
        """Take up requests that were held up, at most `limit` of them. Raises nothing. Called from anywhere."""
        if self._progress is not None:
            self._progress.set()
            self._progress = None
        if self.state == HELD and not (self._is_going or self._has_more):
            try:
                self._go_on(limit)
            except Exception as exc:
                self.end_with(exc)

    def on_next_turn(self) -> None:
        """Others had their turn, and what is left comes now."""
        self._has_more = False
        self.go_on()

    def _go_on(self, left: int = REQUESTS_PER_TURN) -> None:
        """Take up requests, at most `left` of them, and then receive more unless one of them has to wait."""
        self._is_going, is_held_up = True, False
        transport, connection = self.transport, self.connection
        try:
            while self.state == READING or self.state == HELD:
                request = self._held_up
                if request is None:
                    if is_held_up := transport.unsent_bytes > 0 and transport.is_full:
                        break
                    request = self.next_request()
                    if request is None:
                        break
                    self.share.is_whole = True
                if is_held_up := not left:
                    self._held_up, self._has_more = request, True
                    self._is_awaited = not self.reactor.again(self)
                    if self._is_awaited:
                        self.task.wake()
                    break
                self._held_up = None
                self.taken_count += 1
                if is_held_up := not self.take(request):
                    self._held_up = request
                    self.taken_count -= 1
                    break
                left -= 1
                if self._has_left is None and not (connection.unread_bytes or connection.end_received):
                    break  # nothing is left that could be a request, nor an end to be told of
        finally:
            self._is_going = False
        state = self.state
        if state == READING:
            if is_held_up or not connection.can_receive_more:
                state = self.state = TRANSITIONS[state][HOLD]
        elif state == HELD and not is_held_up and connection.can_receive_more:
            state = self.state = TRANSITIONS[state][RESUME]
            self.reactor.expect(self)
        self.share.is_receiving = state == READING

    def work_on(self, work: Work, *, ends_with_reading: bool = False) -> None:
        """Have the task wait for something before the next request is taken up. `ends_with_reading`: nobody wants it when no
        more requests are taken."""
        self.state = TRANSITIONS[self.state][WORK]
        self.task.work_on(work, ends_with_reading=ends_with_reading)

    def hold_up(self, request: RequestT) -> None:
        """Store the request for which `work_on` was called: it is the next one to start."""
        self._held_up = request

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Have `peer_left` called when the peer goes away within the block."""
        self._watching += 1
        try:
            if self._has_left is not None:
                self.peer_left(self._has_left)
            yield
        finally:
            self._watching -= 1

    @property
    def is_watched(self) -> bool:
        """Return whether `peer_left` must be called."""
        return self._watching > 0

    def on_departure(self, is_gone: bool) -> None:
        """The peer sends no more, which was noticed while nobody reads. Raises nothing."""
        self._has_left = is_gone
        if self.is_watched:
            try:
                self.peer_left(is_gone)
            except Exception as exc:
                self.end_with(exc)

    def end_with(self, error: Exception) -> None:
        """Something that nobody expected, or a lack of memory: it ends the connection and nobody else's."""
        self._error = error
        self.state = TRANSITIONS[self.state][STOP]
        self._scope.cancel()

    # ---- end -----------------------------------------------------------------------------------------------------------

    def end_reading(self) -> None:
        """The peer sends no more, or is gone: nothing that is not whole will be a request."""
        self.state = TRANSITIONS[self.state][STOP]
        self.task.wake()

    def stop_reading(self) -> None:
        """Take no more requests. The one that is being taken up is not interrupted; what was taken is still answered."""
        before, self.state = self.state, TRANSITIONS[self.state][STOP]
        if before != self.state:
            unread = bool(self.connection.unread_bytes) or self.transport.has_unread_bytes()
            self.lingers = unread or self.has_unanswered or bool(self.transport.unsent_bytes)
        self.task.end_reading()

    def _drop_unread(self) -> None:
        """Forget received bytes that will not become a request."""
        if self._held_up is not None:
            request, self._held_up = self._held_up, None
            self.let_go(request)
        self.give_back(self.connection.drop())

    async def progress(self) -> None:
        """Wait until something was answered or sent."""
        if self._progress is None:
            self._progress = trio.Event()
        await self._progress.wait()
