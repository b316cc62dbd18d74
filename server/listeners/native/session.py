"""One connection of the native protocol: a task that reads, a task that writes, tasks for what has to wait.

The reading task hands requests over in the order they came, so appends to one partition keep it. It stops reading (the
backpressure that the peer feels) while too many requests or bytes are unanswered, a mailbox is full, or answers pile up
unsent. Answers leave in the order they are ready.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple

import attrs
import trio

from ....protocol.errors import ErrorCode, LocalProtocolError, RecordTooLargeError, RemoteProtocolError, RequestError
from ....protocol.native import frames, messages
from ....protocol.native.connection import CONNECTION_CLOSED, NEED_DATA, PAUSED, NativeConnection, NativeRequest, WideFrame
from ....protocol.native.fields import Body
from ....protocol.receive_buffer import LENGTH_BYTES
from ....protocol.types import ANONYMOUS
from ..connections.budget import FREE_BYTES, InFlightBudget, Share
from ..connections.bugs import report_bug
from ..connections.counters import BROKEN_PROTOCOL, STALLED, ApiCounters
from ..connections.transport import Transport

LOGGER: Final = logging.getLogger(__name__)

HELLO_TIMEOUT_S: Final = 10.0
UNKNOWN_API: Final = "unknown"
"""Under this name requests are counted that are for no call of the server's."""


class Taken(NamedTuple):
    """A request that was taken and is not answered."""

    held_bytes: int
    counters: ApiCounters
    started_s: float


InSteps = Callable[[Generator[None, None, Any]], Awaitable[Any]]


@attrs.define(eq=False)
class Session:
    """Owner of one connection's state. `serve` in `native` gives it its meaning."""

    transport: Transport
    connection: NativeConnection
    budget: InFlightBudget
    in_steps: InSteps
    """Reads what is large; others have their turn meanwhile."""
    client_id: str = "-"
    failed: bool = False
    """The peer broke the protocol and was told so in a last error frame."""
    lingers: bool = False
    """Answers were on their way when reading ended, and the peer may have sent more."""
    share: Share = attrs.field(init=False)
    taken_count: int = 0
    """Requests that were taken up."""
    departed: Callable[[], None] | None = None
    """Called when the peer is seen to send no more while nobody receives from it."""
    _progress: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    _taken: dict[int, Taken] = attrs.field(factory=dict)
    """By correlation id."""
    _reading: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _is_waiting_for_request: bool = False
    _takes_no_more: bool = False

    def __attrs_post_init__(self) -> None:
        self.transport.progressed = self._wake_waiting
        self.transport.broke = self.stop_reading
        self.share = self.budget.open_share()
        self.share.payer, self.share.give_up = self._payer, self._give_up
        self.share.unread_bytes = self._unread_bytes

    def _payer(self) -> str:
        principal = self.transport.principal
        return self.transport.host if principal == ANONYMOUS else principal

    def _unread_bytes(self) -> int:
        return self.connection.unread_bytes

    @property
    def peer(self) -> str:
        return self.transport.peer

    # ---- answers: called from any task, never wait -------------------------------------------------------------------

    def respond(self, correlation_id: int, error: RequestError | None, body: Body | None) -> None:
        """Answer a request. An answer that is larger than a frame may be becomes an error."""
        if correlation_id not in self._taken:
            return
        try:
            pieces = self.connection.send_response(correlation_id, error, body)
        except LocalProtocolError as exc:
            too_large = RecordTooLargeError(f"the answer does not fit a frame: {exc}; ask for fewer bytes or partitions")
            pieces = self.connection.send_response(correlation_id, too_large)
            error, body = too_large, None
        self._settle(correlation_id, (error.code,) if error is not None else error_codes(body))
        self.transport.send(pieces)

    def discard(self, correlation_id: int) -> None:
        """The request has no answer."""
        self.connection.discard(correlation_id)
        self._settle(correlation_id)

    def fail(self, error: RequestError | RemoteProtocolError) -> None:
        """Tell the peer in a last error frame why the connection ends, and take no more requests. Unanswered ones stay so."""
        if self.failed:
            return
        self.failed = self.lingers = True
        self.transport.counters.refused += 1
        self.forget_unanswered()
        self.transport.send(self.connection.send_fatal_error(error))
        self.stop_reading()

    def _give_up(self, why: str) -> None:
        """Its frame keeps memory that others wait for."""
        line = f"{self.peer} (client {self.client_id}) is disconnected: {why}"
        self.transport.counters.said.warn(LOGGER, STALLED, line)
        self.transport.counters.end(STALLED)
        self.fail(RequestError(f"{why}; send it anew, faster", ErrorCode.REQUEST_TIMED_OUT))

    def _broke_protocol(self, error: RemoteProtocolError) -> None:
        line = f"{self.peer} (client {self.client_id}) broke the protocol and is disconnected: {error}"
        self.transport.counters.said.warn(LOGGER, BROKEN_PROTOCOL, line)
        self.fail(error)

    def met_bug(self, error: Exception) -> None:
        """End the connection for an error that nobody expected, which its peer is told and no other."""
        report_bug(self.transport.counters, f"a request of {self.peer} (client {self.client_id})", error)
        said = "the request met a bug of the server; its log says which"
        self.fail(RequestError(said, ErrorCode.UNKNOWN_SERVER_ERROR))

    def _wake_waiting(self) -> None:
        if self._progress:
            self._progress.unpark_all()

    def _settle(self, correlation_id: int, errors: Sequence[int] = ()) -> None:
        taken = self._taken.pop(correlation_id)
        self._return(taken.held_bytes)
        taken.counters.answered(perf_counter() - taken.started_s, errors)
        self._wake_waiting()

    def _return(self, size: int) -> None:
        """Bytes of a request are not kept any longer."""
        self.share.held -= size
        if self.share.accounts:
            self.share.give_back()

    # ---- reading -------------------------------------------------------------------------------------------------------

    async def next_request(self) -> NativeRequest | None:
        """The next request; None when the peer is done, gone, or broke the protocol (it was told then)."""
        if self._takes_no_more:
            return None
        self._is_waiting_for_request = True
        try:
            return await self._receive_request()
        finally:
            self._is_waiting_for_request = False

    async def _receive_request(self) -> NativeRequest | None:
        share = self.share
        while True:
            if self.transport.is_full:
                await self.room_to_answer()
            try:
                event = self.connection.next_event()
            except RemoteProtocolError as exc:
                self._broke_protocol(exc)
                return None
            if isinstance(event, WideFrame):
                request = await self._read_wide(event.frame)
                return None if request is None else self._take(request)
            if isinstance(event, NativeRequest):
                return self._take(event)
            if event is CONNECTION_CLOSED:
                return None
            if event is PAUSED:
                with self.transport.watching(self._peer_left):
                    await self._progress.park()
                continue
            assert event is NEED_DATA, event
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

    async def _read_wide(self, frame: memoryview) -> NativeRequest | None:
        self.share.is_whole = True
        try:
            with self.transport.watching(self._peer_left):
                value = await self.in_steps(frames.unpack_frame_steps(frame))
            return self.connection.read_value(value, len(frame))
        except RemoteProtocolError as exc:
            self.connection.refuse()
            self._broke_protocol(exc)
            return None

    def _take(self, event: NativeRequest) -> NativeRequest | None:
        self.share.is_whole = True
        held_bytes = event.size_bytes + LENGTH_BYTES
        if self._takes_no_more:  # since this task was woken, so that its next wait would be cancelled
            self._return(held_bytes)
            return None
        self.taken_count += 1
        name = event.api if event.api in messages.REQUESTS else UNKNOWN_API
        self._taken[event.correlation_id] = Taken(held_bytes, self.transport.counters.api(name), perf_counter())
        return event

    def _peer_left(self, is_gone: bool) -> None:
        """Nobody receives, and the peer sends no more, though it may read: what waits is answered with what there is. A frame
        that will never be whole waits for nothing."""
        if is_gone or self.connection.missing_bytes > self.transport.unread_bytes():
            self.stop_reading()
        if self.departed is not None:
            self.departed()

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return bool(self._taken) or not self._is_waiting_for_request

    def end_idle(self) -> None:
        """Its peer has asked for nothing."""
        LOGGER.debug("%s (client %s) is disconnected: it was idle", self.peer, self.client_id)
        self.stop_reading()

    async def room_to_answer(self) -> None:
        """Wait while the peer leaves more answers unread than it may."""
        while self.transport.is_full:
            await self._progress.park()

    @property
    def reading(self) -> trio.CancelScope:
        """Around everything that takes requests and takes them up; see `stop_reading`."""
        return self._reading

    def stop_reading(self) -> None:
        """Take no more requests. The one that is being taken up is not interrupted; what was taken is still answered."""
        if not self._takes_no_more:
            self._takes_no_more = True
            self.lingers = bool(self._taken or self.transport.unsent_bytes or self._has_unread_bytes())
        if self._is_waiting_for_request:
            self._reading.cancel()

    def _has_unread_bytes(self) -> bool:
        return bool(self.connection.unread_bytes) or self.transport.has_unread_bytes()

    # ---- end -----------------------------------------------------------------------------------------------------------

    async def all_answered(self) -> None:
        """Wait until no request is without its answer."""
        while self._taken:
            await self._progress.park()

    def forget_unanswered(self) -> None:
        """Give the bytes of requests back that will not be answered."""
        self._return(sum(taken.held_bytes for taken in self._taken.values()))
        self._taken.clear()

    def drop_unread(self) -> None:
        """Nothing of what was received will be a request any more."""
        self._return(self.connection.drop())

    def close(self) -> None:
        """Leave nothing to the garbage collector: what a connection keeps can be large."""
        self._taken.clear()
        self.connection.drop()
        self.share.close()
        self.transport.close()
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
