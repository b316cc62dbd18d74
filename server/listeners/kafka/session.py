"""One connection of Kafka's protocol: requests are taken up in their order, answers leave in that order.

As Kafka does, a connection serves one request at a time: a fetch or a join that waits holds up what comes behind it. Produce
requests are the exception, they may be under way together, so that those of one connection share a write and a sync; their
appends are enqueued, and answered, in the order they came.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Final

import attrs
import trio

from ....protocol.errors import RemoteProtocolError
from ....protocol.kafka.apis import ApiKey
from ....protocol.kafka.connection import KafkaConnection, Request, answer_buffers
from ....protocol.limits import MIB
from ....protocol.types import ANONYMOUS, Bytes
from ..budget import InFlightBudget
from ..transport import Transport
from .error_answers import error_codes

LOGGER: Final = logging.getLogger(__name__)

MAX_UNSENT_BYTES: Final = 16 * MIB
"""Answers that a peer has not taken; past it no more requests are read from it."""
MAX_PRODUCES_IN_FLIGHT: Final = 64
REQUESTS_PER_TURN: Final = 4
"""Requests of one connection that are served before others have their turn."""
IDLE_TIMEOUT_S: Final = 600.0
"""A connection without a request for so long is closed (Kafka: connections.max.idle.ms)."""
IDLE_CHECKS: Final = 10
"""How often within that time it is looked again at a connection that is busy."""


@attrs.define(eq=False)
class Turn:
    """A request's place among the answers."""

    session: KafkaSession
    request: Request
    buffers: list[Bytes] | None = None
    is_answered: bool = False
    noted: Callable[[object | None], None] | None = None
    """Told the answer, or None, before it leaves."""
    started_s: float = attrs.field(factory=perf_counter)

    def answer(self, body: object, buffers: list[Bytes] | None = None) -> None:
        """Answer the request; its buffers leave when everything before it has been answered. What comes later, or when the
        connection was given up, has no effect. `buffers`: what is sent instead of what the body makes."""
        if not self.is_answered:
            self._end(body, error_codes(body), answer_buffers(self.request, body) if buffers is None else buffers)

    def discard(self) -> None:
        """The request has no answer (acks 0)."""
        if not self.is_answered:
            self._end(None, (), [])

    def _end(self, body: object | None, errors: Sequence[int], buffers: list[Bytes]) -> None:
        if self.noted is not None:
            self.noted(body)
        self.session.transport.counters.api(self.request.api.name).answered(perf_counter() - self.started_s, errors)
        self.buffers, self.is_answered = buffers, True
        self.session.send_answers()


TakeUp = Callable[[Turn], Awaitable[None]]
"""Serves one request; returns when the next may be taken up."""


@attrs.define(eq=False)
class KafkaSession:
    """Owner of one connection's state. `serve` is its task."""

    transport: Transport
    connection: KafkaConnection
    budget: InFlightBudget
    open_calls: Callable[[KafkaSession, trio.Nursery], TakeUp]
    """Makes what serves the requests; the nursery is for what goes on beside them."""
    idle_timeout_s: float = IDLE_TIMEOUT_S
    client_id: str = "-"
    software: str = "-"
    """Name and version of the client's library, as it says."""
    principal: str = ANONYMOUS
    """Who the client is, as far as it has said."""
    _turns: deque[Turn] = attrs.field(factory=deque)
    _lingers: bool = False
    _progress: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    _reading: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _parked: trio.CancelScope | None = None
    _is_waiting_for_request: bool = False
    _idle_since: float = 0.0
    """When the last request was taken up."""
    _takes_no_more: bool = False
    _has_failed: bool = False

    def __attrs_post_init__(self) -> None:
        self.transport.progressed = self._wake_waiting
        self.transport.broke = self.stop_reading
        self.principal = self.transport.principal

    @property
    def peer(self) -> str:
        return self.transport.peer

    async def serve(self) -> None:
        """Serve the connection to its end. Cancelled: what is enqueued still happens, its answers are lost."""
        try:
            async with self.transport.stream:
                async with trio.open_nursery() as writing:
                    writing.start_soon(self.transport.write)
                    async with trio.open_nursery() as nursery:
                        take_up = self.open_calls(self, nursery)
                        nursery.start_soon(self._end_when_idle)
                        with self._reading:
                            await self._serve_requests(take_up)
                        while self._turns:
                            await self._progress.park()
                        nursery.cancel_scope.cancel()  # only timers are left
                    self.transport.finish()
                if self._lingers:
                    await self.transport.linger()
        finally:
            self._forget_turns()

    # ---- requests ------------------------------------------------------------------------------------------------------

    async def _serve_requests(self, take_up: TakeUp) -> None:
        served = 0
        while await self._serve_next(take_up):
            served += 1
            if not served % REQUESTS_PER_TURN:
                await trio.lowlevel.checkpoint()

    async def _serve_next(self, take_up: TakeUp) -> bool:
        """Take one request and serve it. A frame of its own: an idle connection must not keep its last request in memory."""
        self._idle_since = trio.current_time()
        request = await self._next_request()
        if request is None:
            return False
        self.client_id = request.client_id or "-"
        is_produce = request.api.key is ApiKey.PRODUCE
        while self._turns and not (is_produce and self._may_join_produces()):
            await self._progress.park()
        if self._takes_no_more:
            self.budget.release(request.size_bytes)
            return False
        turn = Turn(self, request)
        self._turns.append(turn)
        try:
            await take_up(turn)
        except Exception:
            LOGGER.exception("%s v%d of %s met a bug", request.api.name, request.version, self.peer)
            self.fail("its request met a bug of the server")
        return True

    def _may_join_produces(self) -> bool:
        return len(self._turns) < MAX_PRODUCES_IN_FLIGHT and self._turns[-1].request.api.key is ApiKey.PRODUCE

    async def _end_when_idle(self) -> None:
        """A task beside the requests: a deadline that every request moves would cost more than the request's header, and one
        around the requests would cut off those that wait for long."""
        while not self._takes_no_more:
            left = self._idle_since + self.idle_timeout_s - trio.current_time()
            is_busy = bool(self._turns) or not self._is_waiting_for_request
            if left <= 0 and not is_busy:
                LOGGER.debug("%s (client %s) is disconnected: idle for %g s", self.peer, self.client_id, self.idle_timeout_s)
                self.stop_reading()
                return
            await trio.sleep(max(left, self.idle_timeout_s / IDLE_CHECKS if is_busy else 0))

    async def _next_request(self) -> Request | None:
        """The next request; None when the peer is done, gone, or broke the protocol."""
        if self._takes_no_more:
            return None
        self._is_waiting_for_request = True
        try:
            return await self._receive_request()
        finally:
            self._is_waiting_for_request = False

    async def _receive_request(self) -> Request | None:
        while True:
            while self.transport.unsent_bytes > MAX_UNSENT_BYTES:
                await self._progress.park()
            try:
                request = self.connection.next_request()
            except RemoteProtocolError as exc:
                self._log_end(str(exc))
                self.stop_reading()
                return None
            if request is not None:
                await self.budget.acquire(request.size_bytes)
                if not self._takes_no_more:
                    return request
                self.budget.release(request.size_bytes)  # told since this task was woken: its next wait would be cancelled
                return None
            if self.connection.end_received:
                return None
            try:
                data = await self.transport.receive()
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                return None
            self.connection.receive_data(data)

    # ---- waiting -------------------------------------------------------------------------------------------------------

    @contextmanager
    def parked(self, seconds: float) -> Iterator[trio.CancelScope]:
        """Around a wait that ends early when the server stops or the connection is given up."""
        with trio.move_on_after(seconds) as scope:
            self._parked = scope
            if self._takes_no_more:
                scope.cancel()
            try:
                yield scope
            finally:
                self._parked = None

    # ---- answers: called from any task, never wait -----------------------------------------------------------------------

    def send_answers(self) -> None:
        """Send the answers that are due: those that nothing unanswered stands before."""
        turns = self._turns
        while turns and turns[0].is_answered:
            turn = turns.popleft()
            self.budget.release(turn.request.size_bytes)
            if turn.buffers:
                self.transport.send(turn.buffers, at_once=not turns)
        self._wake_waiting()

    def fail(self, why: str) -> None:
        """End the connection without the answers that are due: so Kafka tells a producer with acks 0 of an error. Once: a
        request can fail in thousands of partitions."""
        if not self._has_failed:
            self._has_failed = True
            self._log_end(why)
            self._forget_turns()
            self.stop_reading()

    def _log_end(self, why: str) -> None:
        self.transport.counters.refused += 1
        LOGGER.warning("%s (client %s, %s) is disconnected: %s", self.peer, self.client_id, self.software, why)

    def stop_reading(self) -> None:
        """Take no more requests. The one that is being taken up is not interrupted; what was taken is still answered."""
        if not self._takes_no_more:
            self._takes_no_more = True
            unread = bool(self.connection.unread_bytes) or self.transport.has_unread_bytes()
            self._lingers = unread or bool(self._turns) or bool(self.transport.unsent_bytes)
        if self._is_waiting_for_request:
            self._reading.cancel()
        if self._parked is not None:
            self._parked.cancel()

    def _wake_waiting(self) -> None:
        if self._progress:
            self._progress.unpark_all()

    def _forget_turns(self) -> None:
        while self._turns:
            turn = self._turns.popleft()
            turn.is_answered = True
            self.budget.release(turn.request.size_bytes)
        self._wake_waiting()
