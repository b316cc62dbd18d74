"""One connection of Kafka's protocol: requests are taken up in their order, answers leave in that order.

As Kafka does, a connection serves one request at a time: a fetch or a join that waits holds up what comes behind it. Produce
requests are the exception, they may be under way together, so that those of one connection share a write and a sync; their
appends are enqueued, and answered, in the order they came.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Final

import attrs
import trio

from ....protocol.errors import RemoteProtocolError
from ....protocol.kafka.apis import ApiKey
from ....protocol.kafka.connection import KafkaConnection, Reading, Request, answer_buffers
from ....protocol.receive_buffer import LENGTH_BYTES
from ....protocol.types import ANONYMOUS, Bytes
from ..connections.budget import FREE_BYTES, InFlightBudget, Share
from ..connections.bugs import report_bug
from ..connections.counters import BROKEN_PROTOCOL, FAILED, OUT_OF_MEMORY, STALLED
from ..connections.idle import IDLE_TIMEOUT_S, end_when_idle
from ..connections.transport import Transport
from .error_answers import error_codes

LOGGER: Final = logging.getLogger(__name__)

MAX_PRODUCES_IN_FLIGHT: Final = 64
REQUESTS_PER_TURN: Final = 4
"""Requests of one connection that are served before others have their turn."""
KEPT_PARTITION_BYTES: Final = 512
"""What each partition of a parked request is counted as: the objects of its question, which are more than its bytes were."""


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
    given_back_bytes: int = 0
    """Of its frame, before it is answered."""

    @property
    def held_bytes(self) -> int:
        """Bytes that it counts as in its connection's share."""
        return self.request.size_bytes + LENGTH_BYTES - self.given_back_bytes

    @property
    def needs_body(self) -> bool:
        """Whether somebody looks at the answer before it leaves; else its buffers are enough."""
        return self.noted is not None

    def answer(self, body: object, buffers: list[Bytes] | None = None, errors: Sequence[int] | None = None) -> None:
        """Answer the request; its buffers leave when everything before it has been answered. What comes later, or when the
        connection was given up, has no effect. `buffers`: what is sent instead of what the body makes, which may then be None
        where nobody `needs_body`. `errors`: its codes, where they are known."""
        if not self.is_answered:
            codes = error_codes(body) if errors is None else errors
            self._end(body, codes, answer_buffers(self.request, body) if buffers is None else buffers)

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
    in_steps: Callable[[Reading], Awaitable[Request]]
    """Reads what is large; others have their turn meanwhile."""
    idle_timeout_s: float = IDLE_TIMEOUT_S
    client_id: str = "-"
    software: str = "-"
    """Name and version of the client's library, as it says."""
    principal: str = ANONYMOUS
    """Who the client is, as far as it has said."""
    share: Share = attrs.field(init=False)
    taken_count: int = 0
    """Requests that were taken up."""
    logs_in: bool = False
    """Whether its peer shows who it is by a login, not by a request alone."""
    _turns: deque[Turn] = attrs.field(factory=deque)
    _lingers: bool = False
    _progress: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    _reading: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _parked: trio.CancelScope | None = None
    _is_waiting_for_request: bool = False
    _takes_no_more: bool = False
    _has_failed: bool = False
    _peer_sends_no_more: bool = False
    """It was noticed while nobody received: what waits is answered with what there is."""

    def __attrs_post_init__(self) -> None:
        self.transport.progressed = self._wake_waiting
        self.transport.broke = self.stop_reading
        self.principal = self.transport.principal
        self.share = self.budget.open_share()
        self.share.payer, self.share.give_up = self._payer, self._give_up
        self.share.unread_bytes = self._unread_bytes

    def _payer(self) -> str:
        return self.transport.host if self.principal == ANONYMOUS else self.principal

    def _unread_bytes(self) -> int:
        return self.connection.unread_bytes

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
                        nursery.start_soon(end_when_idle, self, self.idle_timeout_s)
                        with self._reading:
                            await self._serve_requests(take_up)
                        self._drop_unread()
                        while self._turns:
                            await self._progress.park()
                        nursery.cancel_scope.cancel()  # only timers are left
                    self.transport.finish()
                if self._lingers:
                    await self.transport.linger()
        finally:
            self._close()

    def _drop_unread(self) -> None:
        """Forget received bytes that will not become a request."""
        self.share.held -= self.connection.drop()
        self.share.give_back()

    def _close(self) -> None:
        """Leave nothing to the garbage collector: what a connection keeps can be large."""
        self._forget_turns()
        self.connection.drop()
        self.share.close()
        self.transport.close()

    # ---- requests ------------------------------------------------------------------------------------------------------

    async def _serve_requests(self, take_up: TakeUp) -> None:
        served = 0
        while await self._serve_next(take_up):
            served += 1
            if not served % REQUESTS_PER_TURN:
                await trio.lowlevel.checkpoint()

    async def _serve_next(self, take_up: TakeUp) -> bool:
        """Take one request and serve it. A frame of its own: an idle connection must not keep its last request in memory."""
        request = await self._next_request()
        if request is None:
            return False
        if not self.taken_count and not self.logs_in:
            self.transport.known()
        self.taken_count += 1
        self.client_id = request.client_id or "-"
        is_produce = request.api.key is ApiKey.PRODUCE
        while self._turns and not (is_produce and self._may_join_produces()):
            await self._progress.park()
        if self._takes_no_more:
            self._return(request.size_bytes + LENGTH_BYTES)
            return False
        turn = Turn(self, request)
        self._turns.append(turn)
        try:
            await take_up(turn)
        except MemoryError:
            self.transport.counters.end(OUT_OF_MEMORY)
            self.fail(f"there was no memory for its {request.api.name} of {request.size_bytes} bytes")
        except Exception as exc:
            report_bug(self.transport.counters, f"{request.api.name} v{request.version} of {self.peer}", exc)
            self.fail("its request met a bug of the server")
        return True

    def _may_join_produces(self) -> bool:
        return len(self._turns) < MAX_PRODUCES_IN_FLIGHT and self._turns[-1].request.api.key is ApiKey.PRODUCE

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return bool(self._turns) or not self._is_waiting_for_request

    def end_idle(self) -> None:
        """End the connection of a client that has sent no request for too long."""
        LOGGER.debug("%s (client %s) is disconnected: idle for %g s", self.peer, self.client_id, self.idle_timeout_s)
        self.stop_reading()

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
        share = self.share
        while True:
            while self.transport.is_full:
                await self._progress.park()
            try:
                request = self.connection.next_request()
                if request is not None:
                    share.is_whole = True
                    return request if isinstance(request, Request) else await self._read_large(request)
            except RemoteProtocolError as exc:
                self._log_end(BROKEN_PROTOCOL, str(exc))
                self.stop_reading()
                return None
            if self.connection.end_received:
                return None
            share.is_receiving = True
            try:
                data = await self.transport.receive()
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                return None
            finally:
                share.is_receiving = False
            self.connection.receive_data(data)
            share.held += len(data)
            if share.held > FREE_BYTES and not share.charge_now():
                del data
                with self.transport.watching(self._peer_left):
                    await share.charge()

    async def _read_large(self, reading: Reading) -> Request:
        with self.transport.watching(self._peer_left):
            return await self.in_steps(reading)

    def _return(self, size: int) -> None:
        """Bytes of a request are not kept any longer."""
        self.share.held -= size
        if self.share.accounts:
            self.share.give_back()

    # ---- waiting -------------------------------------------------------------------------------------------------------

    @contextmanager
    def parked(
        self, seconds: float, kept_bytes: int | None = None, *, ends_with_peer: bool = True
    ) -> Iterator[trio.CancelScope]:
        """Around a wait that ends early when the server stops, the connection is given up, or its peer goes away.

        `kept_bytes`: what the request keeps while it waits; the rest of its frame counts no longer. None: all of it.
        """
        watching = self.transport.watching(self._peer_left) if ends_with_peer else nullcontext()
        if kept_bytes is not None:
            self._keep_only(kept_bytes)
        with watching, trio.move_on_after(seconds) as scope:
            self._parked = scope
            if self._takes_no_more or (ends_with_peer and self._peer_sends_no_more):
                scope.cancel()
            try:
                yield scope
            finally:
                self._parked = None

    def _keep_only(self, kept_bytes: int) -> None:
        """Of the request that is being taken up; nothing is kept when the connection was given up meanwhile."""
        if not self._turns:
            return
        self.connection.compact()
        turn = self._turns[-1]
        returned = max(0, turn.held_bytes - kept_bytes)
        turn.given_back_bytes += returned
        self._return(returned)

    def _peer_left(self, is_gone: bool) -> None:
        """Nobody receives, and the peer sends no more, though it may read: what waits is answered with what there is. A frame
        that will never be whole waits for nothing."""
        self._peer_sends_no_more = True
        is_cut_off = self._parked is None and self.connection.missing_bytes > self.transport.unread_bytes()
        if is_gone or is_cut_off:
            self.stop_reading()
        elif self._parked is not None:
            self._parked.cancel()

    # ---- answers: called from any task, never wait -----------------------------------------------------------------------

    def send_answers(self) -> None:
        """Send the answers that are due: those that nothing unanswered stands before."""
        turns = self._turns
        while turns and turns[0].is_answered:
            turn = turns.popleft()
            self._return(turn.held_bytes)
            if turn.buffers:
                self.transport.send(turn.buffers, at_once=not turns)
        self._wake_waiting()

    def fail(self, why: str) -> None:
        """End the connection without the answers that are due: so Kafka tells a producer with acks 0 of an error. Once: a
        request can fail in thousands of partitions."""
        if not self._has_failed:
            self._has_failed = True
            self._log_end(FAILED, why)
            self._forget_turns()
            self.stop_reading()

    def _give_up(self, why: str) -> None:
        """End the connection: its frame holds memory that others wait for."""
        self.transport.counters.end(STALLED)
        self._log_end(STALLED, why)
        self.stop_reading()

    def _log_end(self, kind: str, why: str) -> None:
        """`kind` is one of a few, `why` may be anything."""
        counters = self.transport.counters
        counters.refused += 1
        counters.said.warn(LOGGER, kind, f"{self.peer} (client {self.client_id}, {self.software}) is disconnected: {why}")

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
            self._return(turn.held_bytes)
        self._wake_waiting()
