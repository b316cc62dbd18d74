"""A session of Kafka's protocol: it starts requests in order of arrival and sends responses in that order.

As Kafka does, a connection serves one request at a time: a fetch or a join that waits blocks later requests. Produce requests
are the exception. Several may be in progress together, so that those of one connection share a write and a sync. Their appends
are enqueued, and their responses sent, in order of arrival.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from time import perf_counter
from typing import Any, Final

import attrs
import trio

from ....protocol.errors import RemoteProtocolError
from ....protocol.kafka.apis import ApiKey
from ....protocol.kafka.connection import KafkaConnection, Reading, Request, answer_buffers
from ....protocol.limits import INT32_MAX
from ....protocol.receive_buffer import LENGTH_BYTES
from ....protocol.types import Bytes
from ...broker import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, ClientQuotas
from ...loop.reactor import Expires, Work
from ..connections.counters import BROKEN_PROTOCOL, FAILED, OUT_OF_MEMORY, STALLED, Meter, cut, report_bug
from ..connections.session import Session
from ..connections.states import CLOSED, DRAINING, LINGERING, READING
from .error_answers import error_codes

LOGGER: Final = logging.getLogger(__name__)

MAX_PRODUCES_IN_FLIGHT: Final = 64
NOT_CHARGED: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.WRITE_TXN_MARKERS})
"""Requests that no quota is about: logins, and what brokers say to each other."""
PRODUCE: Final = ApiKey.PRODUCE
KEPT_PARTITION_BYTES: Final = 512
"""What each partition of a parked request is counted as: the objects of its question, which are more than its bytes were."""


@attrs.define(eq=False, repr=False)
class Turn:
    """A request's place among the answers."""

    session: KafkaSession
    request: Request
    buffers: list[Bytes] | None = None
    is_answered: bool = False
    noted: Callable[[object | None], None] | None = None
    """Told the answer, or None, before it leaves."""
    needs_body: bool = False
    """Whether other code, such as `noted`, reads the response before it leaves. If not, its buffers are enough."""
    started_s: float = attrs.field(factory=perf_counter)
    given_back_bytes: int = 0
    """Of its frame, before it is answered."""
    is_charged: bool = False
    """Whether it counts for its client's quotas already."""
    meter: Meter | None = None
    """Where a quota is about the time that requests take."""
    expires: Expires | None = None
    """What waits for its answer under a deadline, until it is answered or the connection ends."""

    @property
    def held_bytes(self) -> int:
        """Bytes that it counts as in its connection's share."""
        return self.request.size_bytes + LENGTH_BYTES - self.given_back_bytes

    def answer(self, body: object, buffers: list[Bytes] | None = None, errors: Sequence[int] | None = None) -> None:
        """Answer the request; its buffers leave when everything before it has been answered. What comes later, or when the
        connection was given up, has no effect. `buffers`: what is sent instead of what the body makes. `errors`: its
        codes, where they are known."""
        if not self.is_answered:
            if self.session.quotas.is_active and not self.is_charged:
                body = self.charged(body)
            codes = error_codes(body) if errors is None else errors
            self.leave(answer_buffers(self.request, body) if buffers is None else buffers, codes, body)

    def discard(self) -> None:
        """The request has no answer (acks 0)."""
        if not self.is_answered:
            if self.session.quotas.is_active and not self.is_charged:
                self.charge()
            self.leave([])

    def forget_deadline(self) -> None:
        """Nothing waits any more, and nothing is kept of what did: its records would stay until a collection of garbage."""
        if self.expires is not None:
            self.session.deadlines.pop(self.expires, None)
            self.expires = None

    def charged(self, body: Any) -> Any:
        """The answer, which tells for how long the client is to be quiet."""
        throttle_ms = self.charge()
        if throttle_ms and hasattr(body, "throttle_time_ms"):
            body = copy.copy(body)
            body.throttle_time_ms = max(throttle_ms, body.throttle_time_ms)
        return body

    def charge(self) -> int:
        """Have the request, which is answered now, count for the quotas of its client. For so many ms nothing more is taken
        from this connection; mostly 0."""
        self.is_charged = True
        seconds = self.session.charge(self)
        if not seconds:
            return 0
        self.session.mute(seconds)
        return min(round(seconds * 1000), INT32_MAX)

    def met_bug(self, error: Exception) -> None:
        """End the connection after an unhandled exception kept an actor from responding to this request. The actor itself
        continues."""
        session = self.session
        report_bug(session.transport.counters, f"the response to a {self.request.api.name} of {session.peer}", error)
        session.fail("unhandled exception in the server while sending its response")

    def leave(self, buffers: list[Bytes], errors: Sequence[int] = (), body: object = None) -> None:
        """Answer with these buffers a request that its client was charged for, if quotas are active. `body`: the message that
        they were made of, where other code `needs_body`. `errors`: its codes."""
        if self.is_answered:
            return
        session, name = self.session, self.request.api.name
        if self.expires is not None:
            session.deadlines.pop(self.expires, None)
            self.expires = None
        if self.noted is not None:
            self.noted(body)
        counters = session.transport.counters.apis[name]
        counters.durations.add(perf_counter() - self.started_s)
        if errors:
            counters.note_errors(errors)
        self.buffers, self.is_answered = buffers, True
        session.send_answers()


TakeUp = Callable[[Turn], Work | None]
"""Serves one request, or answers what is to be waited for before the next one may be taken up."""


def _ended(_: object) -> None:
    """Nothing is taken up any more."""


@attrs.define(eq=False, repr=False, kw_only=True)
class KafkaSession(Session[Request]):
    """Owner of one connection's state. `serve` is its task."""

    connection: KafkaConnection
    open_calls: Callable[[KafkaSession], TakeUp]
    """Makes what serves the requests."""
    in_steps: Callable[[Reading], Awaitable[Request]]
    """Reads what is large; others have their turn meanwhile."""
    quotas: ClientQuotas = attrs.field(factory=ClientQuotas)
    """Of all clients of the broker."""
    owed_s: float = 0.0
    """For how long the client has to be quiet because of what the request reads that is being answered."""
    has_ended: Callable[[KafkaSession], None] = _ended
    """Told when the connection is no more."""
    logs_in: bool = False
    """Whether its peer shows who it is by a login, not by a request alone."""
    _take_up: TakeUp = attrs.field(init=False)
    _time: Callable[[], float] = attrs.field(init=False)
    """trio's, without the look for its clock: a session asks for it with every request that a quota is about."""
    _turns: deque[Turn] = attrs.field(factory=deque)
    _parked: trio.CancelScope | None = None
    _has_failed: bool = False
    _peer_sends_no_more: bool = False
    """It was noticed while nobody received: what waits is answered with what there is."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._take_up = self.open_calls(self)
        self._time = trio.lowlevel.current_clock().current_time

    def begin(self) -> None:
        """Nothing is to be said first."""

    async def serve(self) -> None:
        try:
            await super().serve()
        finally:
            self.has_ended(self)

    # ---- requests ------------------------------------------------------------------------------------------------------

    def next_request(self) -> Request | None:
        try:
            request = self.connection.next_request()
        except RemoteProtocolError as exc:
            self._broke_protocol(exc)
            return None
        if request is None:
            if self.connection.end_received:
                self.end_reading()
            return None
        if request.__class__ is Request:
            return request
        assert not isinstance(request, Request)
        self.share.is_whole = True
        self.work_on(partial(self._read_large, request), ends_with_reading=True)
        return None

    async def _read_large(self, reading: Reading) -> None:
        try:
            with self.watching():
                self.hold_up(await self.in_steps(reading))
        except RemoteProtocolError as exc:
            self._broke_protocol(exc)

    def _broke_protocol(self, error: RemoteProtocolError) -> None:
        self._log_end(BROKEN_PROTOCOL, str(error))
        if self.protocol_broken is not None:
            self.protocol_broken(str(error))
        self.stop_reading()

    def take(self, request: Request) -> bool:
        turns = self._turns
        if turns and not self._starts_beside(request, turns):
            return False
        if self.taken_count == 1 and not self.logs_in:
            self.transport.known()
        self.client_id = request.client_id or "-"
        turn = Turn(self, request)
        turns.append(turn)
        try:
            if self.quotas.counts_time:
                turn.meter = Meter()
                turn.meter.go()
            work = self._take_up(turn)
        except Exception as exc:
            self._end_for(exc, request)
        else:
            if turn.meter is not None:
                turn.meter.pause()
            if work is not None:
                self.work_on(partial(self._finish, work, turn))
        return True

    @staticmethod
    def _starts_beside(request: Request, turns: Sequence[Turn]) -> bool:
        """Return whether a request can start while others are in progress."""
        is_produce = request.api.key is ApiKey.PRODUCE
        return is_produce and len(turns) < MAX_PRODUCES_IN_FLIGHT and turns[-1].request.api.key is ApiKey.PRODUCE

    async def _finish(self, work: Work, turn: Turn) -> None:
        try:
            await (work() if turn.meter is None else turn.meter.run(work()))
        except Exception as exc:
            self._end_for(exc, turn.request)

    def _end_for(self, error: Exception, request: Request) -> None:
        """A request ended with what nobody expected: so does its connection, and no other."""
        counters = self.transport.counters
        if isinstance(error, MemoryError):
            counters.end(OUT_OF_MEMORY)
            self.fail(f"no memory for its {request.api.name} of {request.size_bytes} bytes")
        else:
            report_bug(counters, f"{request.api.name} v{request.version} of {self.peer}", error)
            self.fail("unhandled exception in the server while handling its request")

    def let_go(self, request: Request) -> None:
        self.give_back(request.size_bytes + LENGTH_BYTES)

    @property
    def requests_in_flight(self) -> int:
        return len(self._turns)

    def turns_to_end(self) -> list[Turn] | None:
        """Take no more requests; return those that are under way. None: bytes of a further one were received already, or the
        connection ends anyway."""
        is_ending = self.state in (DRAINING, LINGERING, CLOSED) or self._held_up is not None
        is_ending = is_ending or bool(self.connection.unread_bytes) or self.task.is_for_next_request
        self.end_reading()
        return None if is_ending else list(self._turns)

    # ---- quotas ----------------------------------------------------------------------------------------------------------

    @property
    def asking_client(self) -> str:
        """The client id of the request that is being answered."""
        return self._turns[-1].request.client_id or "" if self._turns else ""

    def charge(self, turn: Turn) -> float:
        """For how long the client has to be quiet after this request, in seconds."""
        seconds = self.owed_s
        if seconds:
            self.owed_s = 0.0
        request, quotas, now = turn.request, self.quotas, self._time()
        key, client_id = request.api.key, request.client_id or ""
        if key is PRODUCE:
            used_up_s = quotas.use(PRODUCER_BYTE_RATE, self.user, client_id, request.size_bytes, now)
            seconds = used_up_s if used_up_s > seconds else seconds
        elif key in NOT_CHARGED:
            return seconds
        if turn.meter is not None and not (key is PRODUCE and not request.body.acks):
            percents = 100 * turn.meter.spent_s
            seconds = max(seconds, quotas.use(REQUEST_PERCENTAGE, self.user, client_id, percents, now))
        return seconds

    # ---- waiting -------------------------------------------------------------------------------------------------------

    @contextmanager
    def parked(
        self, seconds: float, kept_bytes: int | None = None, *, ends_with_peer: bool = True
    ) -> Iterator[trio.CancelScope]:
        """Around a wait that ends early when the server stops, the connection is given up, or its peer goes away.

        `kept_bytes`: what the request keeps while it waits; the rest of its frame counts no longer. None: all of it.
        """
        if kept_bytes is not None:
            self._keep_only(kept_bytes)
        with trio.move_on_after(seconds) as scope:
            self._parked = scope
            if self.state == DRAINING or (ends_with_peer and self._peer_sends_no_more):
                scope.cancel()
            try:
                with self.watching() if ends_with_peer else nullcontext():
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
        self.give_back(returned)

    def peer_left(self, is_gone: bool) -> None:
        """Finish the waiting request with the data available. A frame that can never become complete ends the reading at
        once."""
        self._peer_sends_no_more = True
        is_cut_off = self._parked is None and self.connection.missing_bytes > self.transport.unread_bytes()
        if is_gone or is_cut_off:
            self.stop_reading()
        elif self._parked is not None:
            self._parked.cancel()

    # ---- answers: called from anywhere, never wait -----------------------------------------------------------------------

    def send_answers(self) -> None:
        """Send the answers that are due: those that nothing unanswered stands before."""
        turns, share = self._turns, self.share
        while turns and turns[0].is_answered:
            turn = turns.popleft()
            share.held -= turn.request.size_bytes + LENGTH_BYTES - turn.given_back_bytes
            if turn.buffers:
                self.transport.send(turn.buffers)
        if share.accounts:
            share.give_back()
        if self.state != READING:
            self.go_on()

    # ---- end -----------------------------------------------------------------------------------------------------------

    def fail(self, why: str) -> None:
        """End the connection without the answers that are due: so Kafka tells a producer with acks 0 of an error. Once: a
        request can fail in thousands of partitions."""
        if not self._has_failed:
            self._has_failed = True
            self._log_end(FAILED, why)
            self._forget_turns()
            self.stop_reading()

    def end_stalled(self, why: str) -> None:
        self._log_end(STALLED, why)
        self.stop_reading()

    def _log_end(self, kind: str, why: str) -> None:
        """`kind` is one of a few, `why` may be anything."""
        counters = self.transport.counters
        counters.refused += 1
        names = f"client {cut(self.client_id)}, {cut(self.software)}"
        counters.said.warn(LOGGER, kind, f"{self.peer} ({names}) is disconnected: {why}")

    def stop_reading(self) -> None:
        super().stop_reading()
        if self._parked is not None:
            self._parked.cancel()

    async def end(self) -> None:
        while self._turns:
            await self.progress()

    def forget(self) -> None:
        self._forget_turns()
        self._take_up = _ended

    def _forget_turns(self) -> None:
        while self._turns:
            turn = self._turns.popleft()
            turn.is_answered = True
            turn.forget_deadline()
            self.give_back(turn.held_bytes)
        self.go_on()
