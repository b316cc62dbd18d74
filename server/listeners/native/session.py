"""A session of the native protocol: it starts requests in order of arrival, so that appends to one partition keep it. Responses
leave in the order in which they are ready.

It stops reading (the backpressure that the peer feels) while too many requests or bytes have no response, a mailbox is full, or
too many responses are unsent.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple

import attrs
import trio

from ....protocol.errors import ErrorCode, LocalProtocolError, RecordTooLargeError, RemoteProtocolError, RequestError
from ....protocol.native import frames, messages
from ....protocol.native.connection import CONNECTION_CLOSED, PAUSED, NativeConnection, NativeRequest, WideFrame
from ....protocol.native.kinds import Body
from ....protocol.native.state import State
from ....protocol.receive_buffer import LENGTH_BYTES
from ...broker import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, ClientQuotas
from ...loop.reactor import Expires, Work
from ..connections.counters import BROKEN_PROTOCOL, STALLED, ApiCounters, Meter, report_bug
from ..connections.session import Session
from ..connections.states import DRAINING

LOGGER: Final = logging.getLogger(__name__)

HELLO_TIMEOUT_S: Final = 10.0
PRODUCING: Final = frozenset({messages.ProduceRequest.api, messages.StageRequest.api})
CONSUMING: Final = frozenset({messages.FetchRequest.api})
"""Calls whose bytes count for a client's quotas."""
UNKNOWN_API: Final = "unknown"
"""Under this name requests are counted that are for no call of the server's."""


class Taken(NamedTuple):
    """A request that was taken and is not answered."""

    held_bytes: int
    counters: ApiCounters
    started_s: float
    api: str


InSteps = Callable[[Generator[None, None, Any]], Awaitable[Any]]


TakeUp = Callable[[NativeRequest], Work | None]
"""Serves one request, or answers what is to be waited for before the next one may be taken up."""


def _ended(_: object) -> None:
    """Nothing is taken up any more."""


@attrs.define(eq=False, repr=False, kw_only=True)
class NativeSession(Session[NativeRequest]):
    """Owner of one connection's state."""

    connection: NativeConnection
    open_calls: Callable[[NativeSession], TakeUp]
    """Makes what serves the requests."""
    in_steps: InSteps
    """Reads what is large; others have their turn meanwhile."""
    quotas: ClientQuotas = attrs.field(factory=ClientQuotas)
    """Of all clients of the broker."""
    failed: bool = False
    """The peer broke the protocol and was told so in a last error frame."""
    departed: Callable[[], None] | None = None
    """Called when the peer is seen to send no more, and when no more requests are taken."""
    amends: dict[int, Callable[[Body], None]] = attrs.field(factory=dict)
    """By correlation id: what is done to an answer before it leaves, because the client may not have all of it."""
    _take_up: TakeUp = attrs.field(init=False)
    _pause: trio.CancelScope | None = None
    _taken: dict[int, Taken] = attrs.field(factory=dict)
    """By correlation id."""
    _expiring: dict[int, Expires] = attrs.field(factory=dict)
    """Those of them that have a timeout, which ends with the connection."""

    def begin(self) -> None:
        self._take_up = self.open_calls(self)
        self.task.ring_at(trio.current_time() + HELLO_TIMEOUT_S, self._end_without_hello)

    def _end_without_hello(self) -> None:
        if self.connection.state is not State.READY:
            LOGGER.debug("%s sent no hello within %d s", self.peer, HELLO_TIMEOUT_S)
            self.end_reading()

    # ---- answers: called from any task, never wait -------------------------------------------------------------------

    def respond(
        self, correlation_id: int, error: RequestError | None, body: Body | None, codes: Sequence[int] | None = None
    ) -> None:
        """Answer a request. An answer that is larger than a frame may be becomes an error. `codes`: the errors in the body,
        each once, where they are known."""
        if correlation_id not in self._taken:
            return
        if self.amends:
            self._amend(correlation_id, body)
            codes = None
        try:
            pieces = self.connection.send_response(correlation_id, error, body)
        except LocalProtocolError as exc:
            too_large = RecordTooLargeError(f"the response does not fit a frame: {exc}. Request fewer bytes or partitions")
            pieces = self.connection.send_response(correlation_id, too_large)
            error, body = too_large, None
        if self.quotas.is_active and self._taken[correlation_id].api in CONSUMING:
            self._use_quota(CONSUMER_BYTE_RATE, sum(map(len, pieces)))
        if error is not None:
            codes = (error.code,)
        elif codes is None:
            codes = error_codes(body)
        self._settle(correlation_id, codes)
        self.transport.send(pieces)

    def _amend(self, correlation_id: int, body: Body | None) -> None:
        amend = self.amends.pop(correlation_id, None)
        if amend is not None and body is not None:
            amend(body)

    def discard(self, correlation_id: int) -> None:
        """The request has no answer."""
        self.connection.discard(correlation_id)
        self._settle(correlation_id)

    def fail(self, error: RequestError | RemoteProtocolError) -> None:
        """Tell the peer in a last error frame why the connection ends, and take no more requests. Unanswered ones stay so."""
        if self.failed:
            return
        self.failed = True
        self.transport.counters.refused += 1
        self.stop_reading()
        self.lingers = True
        self.forget_unanswered()
        self.transport.send(self.connection.send_fatal_error(error))

    def end_stalled(self, why: str) -> None:
        line = f"{self.peer} (client {self.client_id}) is disconnected: {why}"
        self.transport.counters.said.warn(LOGGER, STALLED, line)
        self.fail(RequestError(f"{why}. Send it again, faster", ErrorCode.REQUEST_TIMED_OUT))

    def _broke_protocol(self, error: RemoteProtocolError) -> None:
        line = f"{self.peer} (client {self.client_id}) broke the protocol and is disconnected: {error}"
        self.transport.counters.said.warn(LOGGER, BROKEN_PROTOCOL, line)
        if self.protocol_broken is not None:
            self.protocol_broken(str(error))
        self.fail(error)

    def met_bug(self, error: Exception) -> None:
        """End the connection for an error that nobody expected, which its peer is told and no other."""
        report_bug(self.transport.counters, f"a request of {self.peer} (client {self.client_id})", error)
        said = "unhandled exception in the server. See its log"
        self.fail(RequestError(said, ErrorCode.UNKNOWN_SERVER_ERROR))

    def expire_after(self, correlation_id: int, who: Expires, seconds: float) -> None:
        """Have `expire` called when a request is not answered in time."""
        self._expiring[correlation_id] = who
        self.deadlines.add(who, seconds)

    def _settle(self, correlation_id: int, errors: Sequence[int] = ()) -> None:
        taken = self._taken.pop(correlation_id)
        if (who := self._expiring.pop(correlation_id, None)) is not None:
            self.deadlines.pop(who, None)
        self.give_back(taken.held_bytes)
        taken.counters.durations.add(perf_counter() - taken.started_s)
        if errors:
            taken.counters.note_errors(errors)
        self.go_on()

    # ---- requests ------------------------------------------------------------------------------------------------------

    def next_request(self) -> NativeRequest | None:
        try:
            event = self.connection.next_event()
        except RemoteProtocolError as exc:
            self._broke_protocol(exc)
            return None
        if isinstance(event, NativeRequest):
            return event
        if isinstance(event, WideFrame):
            self.share.is_whole = True
            self.work_on(partial(self._read_wide, event.frame), ends_with_reading=True)
        elif event is CONNECTION_CLOSED:
            self.end_reading()
        elif event is PAUSED and self._has_left is not None:
            self.peer_left(self._has_left)
        return None

    async def _read_wide(self, frame: memoryview) -> None:
        try:
            with self.watching():
                value = await self.in_steps(frames.unpack_frame_steps(frame))
            self.hold_up(self.connection.read_value(value, len(frame)))
        except RemoteProtocolError as exc:
            self.connection.refuse()
            self._broke_protocol(exc)

    def take(self, request: NativeRequest) -> bool:
        name = request.api if request.api in messages.REQUESTS else UNKNOWN_API
        counters = self.transport.counters.apis[name]
        self._taken[request.correlation_id] = Taken(request.size_bytes + LENGTH_BYTES, counters, perf_counter(), name)
        work = self._take_up_charged(request) if self.quotas.is_active else self._take_up(request)
        if work is not None:
            self.work_on(work)
        return True

    def _take_up_charged(self, request: NativeRequest) -> Work | None:
        """The same, where it counts for the quotas of the client, who is not told: this protocol has no word for it. What makes
        him quiet is that nobody reads from him."""
        meter = Meter()
        meter.go()
        work = self._take_up(request)
        meter.pause()
        if request.api in PRODUCING:
            self._use_quota(PRODUCER_BYTE_RATE, request.size_bytes)
        if work is None:
            self._use_quota(REQUEST_PERCENTAGE, 100 * meter.spent_s)
            return None
        return partial(self._work_charged, work, meter)

    async def _work_charged(self, work: Work, meter: Meter) -> None:
        await meter.run(work())
        self._use_quota(REQUEST_PERCENTAGE, 100 * meter.spent_s)

    def _use_quota(self, key: str, amount: float) -> None:
        seconds = self.quotas.use(key, self.user, self.client_id, amount, trio.current_time())
        if seconds:
            self.mute(seconds)

    def let_go(self, request: NativeRequest) -> None:
        self.give_back(request.size_bytes + LENGTH_BYTES)

    @property
    def requests_in_flight(self) -> int:
        return len(self._taken)

    @property
    def is_watched(self) -> bool:
        return super().is_watched or not self.connection.can_receive_more

    def peer_left(self, is_gone: bool) -> None:
        """Finish the waiting requests with the data available. A frame that can never become complete ends the reading at
        once."""
        if is_gone or self.connection.missing_bytes > self.transport.unread_bytes():
            self.stop_reading()
        if self.departed is not None:
            self.departed()

    async def pause(self, seconds: float) -> None:
        """Wait, but no longer than requests are taken."""
        with trio.move_on_after(seconds) as self._pause:
            if self.state == DRAINING:
                return
            with self.watching():
                await trio.sleep_forever()

    def stop_reading(self) -> None:
        super().stop_reading()
        if self._pause is not None:
            self._pause.cancel()

    async def room_to_answer(self) -> None:
        """Wait while the peer leaves more answers unread than it may."""
        while self.transport.is_full:
            await self.progress()

    # ---- end -----------------------------------------------------------------------------------------------------------

    async def end(self) -> None:
        if self.departed is not None:
            self.departed()
        while self._taken:
            await self.progress()

    def _forget_timeouts(self) -> None:
        for who in self._expiring.values():
            self.deadlines.pop(who, None)
        self._expiring.clear()

    def forget_unanswered(self) -> None:
        """Give the bytes of requests back that will not be answered."""
        self._forget_timeouts()
        self.give_back(sum(taken.held_bytes for taken in self._taken.values()))
        self._taken.clear()
        self.amends.clear()
        self.go_on()

    def forget(self) -> None:
        self._forget_timeouts()
        self._taken.clear()
        self.amends.clear()
        self._take_up = _ended
        self.departed = None


def error_codes(body: Any) -> list[int]:
    """The codes of the errors in the entries of an answer, each once. Entries stand in lists of maps."""
    codes: list[int] = []
    for entries in body.values() if body else ():
        if entries.__class__ is list and entries and entries[0].__class__ is dict:
            for entry in entries:
                error = entry.get("error")
                if error is not None and error[0] not in codes:
                    codes.append(error[0])
    return codes
