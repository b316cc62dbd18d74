"""A native connection without a socket: bytes in, events out; messages in, bytes out. For either end.

Owns what is in flight and what may follow (`state` has the table), not what bodies mean (`messages`). A request is
`[correlation_id, api, version, body]`, an answer `[correlation_id, error, body]`; correlation id 0 belongs to the last
error frame of a connection. The peer's misuse raises RemoteProtocolError; ours LocalProtocolError, and then nothing has
changed.
"""

from __future__ import annotations

import enum
from typing import Any, Final, NamedTuple

from .. import limits
from ..errors import LocalProtocolError, RemoteProtocolError, RequestError
from ..receive_buffer import ReceiveBuffer
from ..types import Bytes
from . import frames
from .kinds import Body, FieldError, decode_error, describe_value, encode_error
from .state import Role, State, Step, next_state

HELLO: Final = "hello"
LAST_ERROR_ID: Final = 0
_REQUEST_TYPES: Final = [int, str, int, dict]
MAX_CORRELATION_ID: Final = 2**32 - 1


class Idle(enum.Enum):
    """Why there is no message."""

    NEED_DATA = enum.auto()
    PAUSED = enum.auto()
    CONNECTION_CLOSED = enum.auto()


NEED_DATA: Final = Idle.NEED_DATA
"""Feed `receive_data`."""
PAUSED: Final = Idle.PAUSED
"""As much as allowed is in flight: answer something before reading on."""
CONNECTION_CLOSED: Final = Idle.CONNECTION_CLOSED
"""The peer has finished sending, and everything it sent has been handed out."""


class NativeRequest(NamedTuple):
    """A request as received; the body is what msgpack yields. `size_bytes` is what it counts in flight."""

    correlation_id: int
    api: str
    version: int
    body: Body
    size_bytes: int
    is_wide: bool = False
    """Whether reading it took long; checking what it means will, too."""


class Response(NamedTuple):
    """An answer to the request of this correlation id; exactly one of `error` and `body` is not None."""

    correlation_id: int
    api: str
    version: int
    error: RequestError | None
    body: Body | None
    size_bytes: int


class WideFrame(NamedTuple):
    """A request that takes long to read: `frames.unpack_frame_steps` does it, and `read_value` goes on with what it holds."""

    frame: memoryview


class LastError(NamedTuple):
    """The server ends the connection, and why. Requests in flight will not be answered."""

    error: RequestError


Event = NativeRequest | Response | WideFrame | LastError | Idle


class _InFlight(NamedTuple):
    api: str
    version: int
    size_bytes: int


class NativeConnection(ReceiveBuffer):
    """An end of a native connection. Owner: the task that reads and the task that writes, in one thread."""

    def __init__(
        self,
        role: Role,
        *,
        max_frame_bytes: int = limits.MAX_FRAME_BYTES,
        max_in_flight: int = limits.MAX_IN_FLIGHT,
        max_in_flight_bytes: int = limits.MAX_IN_FLIGHT_BYTES,
        hands_out_wide_frames: bool = False,
        awaits_login: bool = False,
    ) -> None:
        super().__init__(min(max_frame_bytes, limits.MAX_UNKNOWN_BYTES) if role is Role.SERVER else max_frame_bytes)
        self._role = role
        self._state = State.AWAIT_HELLO
        self._last_error_sent = False
        self._max_sent_bytes = max_frame_bytes
        self._max_in_flight = max_in_flight
        self._max_in_flight_bytes = max_in_flight_bytes
        self._hands_out_wide_frames = hands_out_wide_frames
        self._awaits_login = awaits_login
        self._in_flight: dict[int, _InFlight] = {}
        self._in_flight_bytes = 0

    def __repr__(self) -> str:
        return (
            f"<NativeConnection {self._role.name} {self._state.name}, {len(self._in_flight)} in flight of "
            f"{self._in_flight_bytes} bytes, {self.unread_bytes} bytes unread>"
        )

    @property
    def role(self) -> Role:
        """Return the end of the connection that this is: client or server."""
        return self._role

    @property
    def state(self) -> State:
        """Return the state of the connection, which decides the next steps."""
        return self._state

    @property
    def in_flight_count(self) -> int:
        """Requests without an answer."""
        return len(self._in_flight)

    @property
    def in_flight_bytes(self) -> int:
        """Frame bytes of requests without an answer."""
        return self._in_flight_bytes

    @property
    def can_receive_more(self) -> bool:
        """Return whether the in-flight limits admit another request. The first always fits."""
        return len(self._in_flight) < self._max_in_flight and self._in_flight_bytes < self._max_in_flight_bytes

    @property
    def can_send_request(self) -> bool:
        """Client: whether a request may be sent now without waiting for an answer."""
        return self._state is State.READY and self.can_receive_more

    def adopt_limits(self, *, max_frame_bytes: int, max_in_flight: int) -> None:
        """Client: keep to what the server's hello told."""
        self._max_sent_bytes = max_frame_bytes
        self._max_in_flight = max_in_flight

    def logged_in(self) -> None:
        """Server: frames may be as large as they may be from now on, where a login was awaited."""
        self._check_role(Role.SERVER)
        self._awaits_login = False
        self.max_frame_bytes = self._max_sent_bytes

    def next_event(self) -> Event:
        """The next message, or why there is none. After RemoteProtocolError the state is ERROR.

        A server that raises it owes the peer `send_fatal_error`; the end of a stream inside a frame raises it too.
        """
        if self._state is State.ERROR:
            raise LocalProtocolError("the connection has failed; nothing more can be received")
        if self._role is Role.SERVER and not self.can_receive_more:
            return PAUSED
        try:
            frame = self.next_frame()
            if frame is None:
                return self._handle_end() if self.end_received else NEED_DATA
            return self._read_request(frame) if self._role is Role.SERVER else self._read_answer(frame)
        except RemoteProtocolError:
            self._state = State.ERROR
            raise

    def send_request(
        self, correlation_id: int, api: str, version: int, body: Body, *, expects_answer: bool = True
    ) -> list[Bytes]:
        """Client: the buffers of a request, record bytes as they came. Without `expects_answer` it is not in flight."""
        self._check_role(Role.CLIENT)
        state = self._state_after(Step.HELLO if api == HELLO else Step.REQUEST, LocalProtocolError)
        if not 0 < correlation_id <= MAX_CORRELATION_ID:
            raise LocalProtocolError(f"correlation id {correlation_id}, expected 1 to {MAX_CORRELATION_ID}")
        if correlation_id in self._in_flight:
            raise LocalProtocolError(f"correlation id {correlation_id} is in flight")
        if len(self._in_flight) >= self._max_in_flight:
            raise LocalProtocolError(f"{len(self._in_flight)} requests in flight, the server allows {self._max_in_flight}")
        pieces, size = self._pack((correlation_id, api, version), body)
        if expects_answer:
            self._add(correlation_id, _InFlight(api, version, size))
        self._state = state
        return pieces

    def send_response(self, correlation_id: int, error: RequestError | None = None, body: Body | None = None) -> list[Bytes]:
        """Server: the buffers of an answer, record bytes as they came. The request is no longer in flight."""
        self._check_role(Role.SERVER)
        state = self._state_after(self._answer_step(correlation_id, error, LocalProtocolError), LocalProtocolError)
        if (error is None) == (body is None):
            raise LocalProtocolError("an answer has either an error or a body")
        pieces, _ = self._pack((correlation_id, encode_error(error)), body)
        self._remove(correlation_id)
        if state is not self._state:
            self._state = state
            if state is State.READY and not self._awaits_login:
                self.max_frame_bytes = self._max_sent_bytes
        return pieces

    def discard(self, correlation_id: int) -> None:
        """Server: the request has been dealt with and has no answer (acks 0). It is no longer in flight."""
        self._check_role(Role.SERVER)
        self._answer_step(correlation_id, None, LocalProtocolError)
        self._remove(correlation_id)

    def send_fatal_error(self, error: RequestError | RemoteProtocolError) -> list[Bytes]:
        """Server: the buffers of the last error frame; empty when it was sent already. Nothing may follow it."""
        self._check_role(Role.SERVER)
        if self._last_error_sent:
            return []
        if isinstance(error, RemoteProtocolError):
            error = RequestError(str(error), error.code)
        self._last_error_sent = True
        self._state = State.ERROR
        return frames.pack_frame((LAST_ERROR_ID, encode_error(error)), None)

    def read_value(self, value: object, size: int) -> NativeRequest:
        """Server: the request of a WideFrame of so many bytes. RemoteProtocolError as of `next_event`."""
        try:
            return self._request_of(value, size)._replace(is_wide=True)
        except RemoteProtocolError:
            self._state = State.ERROR
            raise

    def refuse(self) -> None:
        """Server: a WideFrame could not be read."""
        self._state = State.ERROR

    def _read_request(self, frame: memoryview) -> NativeRequest | WideFrame:
        if self._hands_out_wide_frames and frames.is_wide(frame):
            return WideFrame(frame)
        return self._request_of(frames.unpack_frame(frame), len(frame))

    def _request_of(self, value: Any, size: int) -> NativeRequest:
        if not isinstance(value, list) or [type(part) for part in value] != _REQUEST_TYPES:
            raise RemoteProtocolError(
                f"a frame holds {_describe_shape(value)}, expected [correlation_id: uint32, api: str, version: uint, body: map]"
            )
        correlation_id, api, version, body = value
        self._state = self._state_after(Step.HELLO if api == HELLO else Step.REQUEST, RemoteProtocolError)
        if not 0 < correlation_id <= MAX_CORRELATION_ID:
            raise RemoteProtocolError(f"correlation id {correlation_id}, expected 1 to {MAX_CORRELATION_ID}")
        if correlation_id in self._in_flight:
            raise RemoteProtocolError(f"correlation id {correlation_id} is in flight")
        if version < 0:
            raise RemoteProtocolError(f"version {version} of {describe_value(api)}, expected a uint")
        self._add(correlation_id, _InFlight(api, version, size))
        return NativeRequest(correlation_id, api, version, body, size)

    def _read_answer(self, frame: memoryview) -> Response | LastError:
        value = frames.unpack_frame(frame, None)
        if not (
            isinstance(value, list)
            and len(value) == 3
            and type(value[0]) is int
            and (value[2] is None or isinstance(value[2], dict))
        ):
            raise RemoteProtocolError(f"a frame holds {_describe_shape(value)}, expected [correlation_id: uint32, error, body]")
        correlation_id, entry, body = value
        try:
            error = decode_error(entry)
        except FieldError as exc:
            raise RemoteProtocolError(f"an answer's {exc.message}") from exc
        if correlation_id == LAST_ERROR_ID and error is not None:
            self._state = self._state_after(Step.FAILURE, RemoteProtocolError)
            return LastError(error)
        step = self._answer_step(correlation_id, error, RemoteProtocolError)
        self._state = self._state_after(step, RemoteProtocolError)
        if (error is None) == (body is None):
            raise RemoteProtocolError(f"answer {correlation_id} has {'neither' if body is None else 'both'} error and body")
        request = self._remove(correlation_id)
        return Response(correlation_id, request.api, request.version, error, body, len(frame))

    def _handle_end(self) -> Idle:
        if self.unread_bytes:
            raise RemoteProtocolError(f"the stream ended inside a frame: {self.expected_bytes} bytes of it are missing")
        if self._state is not State.CLOSED:
            self._state = self._state_after(Step.END, RemoteProtocolError)
        return CONNECTION_CLOSED

    def _answer_step(self, correlation_id: int, error: RequestError | None, blame: _Blame) -> Step:
        request = self._in_flight.get(correlation_id)
        if request is None:
            raise blame(f"an answer to correlation id {correlation_id}, which is not in flight")
        if request.api != HELLO:
            return Step.ANSWER
        return Step.HELLO_ACCEPTED if error is None else Step.HELLO_REFUSED

    def _state_after(self, step: Step, blame: _Blame) -> State:
        state = next_state(self._state, step)
        if state is None:
            raise blame(f"{step.value} in state {self._state.name}; {_next_step(self._state)}")
        return state

    def _pack(self, envelope: tuple[Any, ...], body: Body | None) -> tuple[list[Bytes], int]:
        pieces = frames.pack_frame(envelope, body)
        size = sum(map(len, pieces))
        if size > self._max_sent_bytes + 4:
            raise LocalProtocolError(f"a frame of {size - 4} bytes, expected at most {self._max_sent_bytes}")
        return pieces, size

    def _add(self, correlation_id: int, request: _InFlight) -> None:
        self._in_flight[correlation_id] = request
        self._in_flight_bytes += request.size_bytes

    def _remove(self, correlation_id: int) -> _InFlight:
        request = self._in_flight.pop(correlation_id)
        self._in_flight_bytes -= request.size_bytes
        return request

    def _check_role(self, role: Role) -> None:
        if self._role is not role:
            raise LocalProtocolError(f"called on a {self._role.name} connection, expected {role.name}")


_Blame = type[LocalProtocolError] | type[RemoteProtocolError]


def _describe_shape(value: object) -> str:
    if not isinstance(value, list):
        return describe_value(value)
    return f"[{', '.join(describe_value(part) for part in value[:5])}{', ...' if len(value) > 5 else ''}]"


def _next_step(state: State) -> str:
    match state:
        case State.AWAIT_HELLO:
            return "send hello first"
        case State.ANSWER_HELLO:
            return "wait for the answer to hello first"
        case State.READY:
            return "hello is said once per connection"
        case _:
            return "open another connection"
