"""A greeted connection over a plain socket, driven by whoever calls: several requests in flight, no thread, no trio."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from ....protocol.errors import RemoteProtocolError, RequestTimedOutError, SaslAuthenticationError
from ....protocol.native.connection import Idle, LastError, Response
from ....protocol.native.messages import AuthenticateResponse, RequestMessage, ResponseMessage
from ....protocol.types import Bytes
from ..config import Address, AddressSource, ClientConfig, address_text
from ..errors import ConnectionLostError
from ..exchange import (
    FIRST_ID,
    MAX_VECTOR,
    begin,
    expect,
    first_answer,
    following,
    greeting,
    joined,
    read_answer,
    read_greeting,
    receive_size,
    remove_sent,
)
from ..login import RENEWED_AT, login_steps
from ..tls import TlsConfig

SHORTEST_WAIT_S: Final = 0.001
"""A socket timeout of 0 would mean not to wait at all, which is another mode of the socket."""


class BlockingConnection:
    """Requests are started and finished apart; answers that nobody waits for yet are kept. Owner: one thread."""

    def __init__(self, address: AddressSource, config: ClientConfig, deadline: float) -> None:
        self._lost: ConnectionLostError | None = None
        self._answers: dict[int, Response] = {}
        self._unwanted: set[int] = set()
        self._next_id = FIRST_ID
        self._config = config
        self._renew_at = float("inf")  # time.monotonic()
        where = address() if callable(address) else address
        self._socket = _open_socket(where, deadline, config.tls)
        self._protocol, pieces = greeting(config)
        try:
            self._send(joined(pieces), deadline)
            self.hello = read_greeting(self._first_event("hello", deadline), self._protocol)
            self._log_in(deadline)
        except SaslAuthenticationError:
            self.lose(ConnectionLostError("the login was refused"))
            raise
        except (RemoteProtocolError, ConnectionLostError) as exc:
            error = _not_connected(where, exc)
            self.lose(error)
            raise error from exc
        except BaseException:
            self.lose(ConnectionLostError("could not connect"))
            raise

    def __repr__(self) -> str:
        return f"<BlockingConnection {self._protocol!r}{f', lost: {self._lost}' if self._lost else ''}>"

    @property
    def is_lost(self) -> bool:
        """Return whether no further call can succeed."""
        return self._lost is not None

    def start(self, request: RequestMessage, deadline: float) -> int:
        """Send a request and return its correlation id, for `finish`.

        A login that ends soon is renewed first. Waits for room among the requests in flight and in the socket;
        ConnectionLostError, RequestTimedOutError.
        """
        if time.monotonic() >= self._renew_at:
            self._renew_login(deadline)
        while self._lost is None and not self._protocol.can_send_request:
            self._pump_or_give_up(deadline, f"no space for another request, {self._protocol.in_flight_count} in flight")
        self._check()
        correlation_id = self._next_id
        pieces = begin(self._protocol, correlation_id, request)
        self._next_id = following(correlation_id)
        self._send(joined(pieces), deadline)
        return correlation_id

    def _first_event(self, api: str, deadline: float) -> object:
        """The answer to the only request that is under way, or why there is none."""
        while (event := self._protocol.next_event()) is Idle.NEED_DATA:
            if not self._receive(deadline):
                raise ConnectionLostError(f"no response to {api} in time")
        return event

    def _log_in(self, deadline: float) -> None:
        """Before anything else is sent, where a login is due."""

        def ask(request: RequestMessage) -> ResponseMessage:
            self._send(joined(begin(self._protocol, FIRST_ID, request)), deadline)
            return first_answer(self._first_event(request.api, deadline), request.api)

        self._go_through_login(ask)

    def _renew_login(self, deadline: float) -> None:
        """Others' answers that come meanwhile are kept."""
        self._renew_at = float("inf")
        try:
            self._go_through_login(lambda request: self.finish(self.start(request, deadline), deadline))
        except SaslAuthenticationError as exc:
            self.lose(ConnectionLostError(f"the login was not renewed: {exc.message}"))
            self._check()

    def _go_through_login(self, ask: Callable[[RequestMessage], ResponseMessage]) -> None:
        is_encrypted = isinstance(self._socket, ssl.SSLSocket)
        steps = login_steps(self._config.login, self.hello, is_encrypted=is_encrypted)
        begun = time.monotonic()
        try:
            request = next(steps)
            while True:
                request = steps.send(expect(AuthenticateResponse, ask(request)))
        except StopIteration as stop:
            lifetime_ms: int = stop.value
            self._renew_at = begun + lifetime_ms / 1000 * RENEWED_AT if lifetime_ms else float("inf")

    def is_answered(self, correlation_id: int) -> bool:
        """Return whether `finish` would return or raise at once."""
        return correlation_id in self._answers or self._lost is not None

    def finish(self, correlation_id: int, deadline: float) -> ResponseMessage:
        """The answer to a request that was started; raises what the server answered, or what broke the connection.

        Past the deadline RequestTimedOutError, and the connection is lost: a server that does not answer is gone.
        """
        while correlation_id not in self._answers:
            self._check()
            self._pump_or_give_up(deadline, f"no response to request {correlation_id}")
        try:
            return read_answer(self._answers.pop(correlation_id))
        except RemoteProtocolError as exc:
            self.lose(ConnectionLostError(str(exc)))
            raise

    def forget(self, correlation_id: int) -> None:
        """The answer is of no interest any more."""
        if self._answers.pop(correlation_id, None) is None:
            self._unwanted.add(correlation_id)

    def pump(self, deadline: float) -> bool:
        """Receive once, waiting no longer than the deadline, and sort the answers; False when nothing came.

        A connection that breaks meanwhile is lost, not raised: `finish` raises it.
        """
        if self._lost is not None:
            return False
        try:
            if not self._receive(deadline):
                return False
            while not isinstance(event := self._protocol.next_event(), Idle):
                if isinstance(event, LastError):
                    self.lose(ConnectionLostError(f"the server ended the connection: {event.error}"))
                    return True
                assert isinstance(event, Response), f"{event!r} at a client"
                if event.correlation_id in self._unwanted:
                    self._unwanted.discard(event.correlation_id)
                else:
                    self._answers[event.correlation_id] = event
            if event is Idle.CONNECTION_CLOSED:
                self.lose(ConnectionLostError("the server closed the connection"))
        except RemoteProtocolError as exc:
            self.lose(ConnectionLostError(f"the server violated the protocol: {exc}"))
        except ConnectionLostError as exc:
            self.lose(exc)
        return True

    def lose(self, error: ConnectionLostError) -> None:
        """Close the socket; every request without an answer has failed. Only the first reason counts."""
        if self._lost is None:
            self._lost = error
            self._socket.close()

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost.with_traceback(None)

    def _pump_or_give_up(self, deadline: float, complaint: str) -> None:
        if not self.pump(deadline) and self._lost is None and time.monotonic() >= deadline:
            self.lose(ConnectionLostError(f"stopped retrying: {complaint}"))
            raise RequestTimedOutError(f"{complaint} in time")

    def _send(self, buffers: list[Bytes], deadline: float) -> None:
        try:
            while buffers:
                self._socket.settimeout(max(SHORTEST_WAIT_S, deadline - time.monotonic()))
                remove_sent(buffers, self._send_some(buffers))
        except OSError as exc:  # also when time is up: what was sent ends inside a frame
            self.lose(ConnectionLostError(f"sending failed: {exc!r}"))
        except BaseException:
            self.lose(ConnectionLostError("interrupted while sending"))
            raise
        self._check()

    def _send_some(self, buffers: list[Bytes]) -> int:
        """Send the first buffers and return the number of bytes sent; TLS accepts one buffer at a time."""
        if isinstance(self._socket, ssl.SSLSocket):
            return self._socket.send(buffers[0])
        return self._socket.sendmsg(buffers[:MAX_VECTOR])

    def _receive(self, deadline: float) -> bool:
        left = deadline - time.monotonic()
        self._socket.settimeout(left if left > 0 else 0)
        try:
            self._protocol.receive_data(self._socket.recv(receive_size(self._protocol)))
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError as exc:
            raise ConnectionLostError(f"receiving failed: {exc!r}") from exc
        except BaseException:
            self.lose(ConnectionLostError("interrupted while receiving"))
            raise
        return True


def _open_socket(address: Address, deadline: float, tls: TlsConfig | None) -> socket.socket:
    opened: socket.socket | None = None
    try:
        opened = socket.create_connection(address, max(SHORTEST_WAIT_S, deadline - time.monotonic()))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            return tls.context().wrap_socket(opened, server_hostname=address[0])
    except OSError as exc:
        if opened is not None:
            opened.close()
        raise _not_connected(address, exc) from exc
    return opened


def _not_connected(address: Address, reason: Exception) -> ConnectionLostError:
    text = reason.message if isinstance(reason, ConnectionLostError) else str(reason)
    return ConnectionLostError(f"could not connect to {address_text(address)}: {text}")
