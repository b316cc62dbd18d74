"""A greeted connection: a stream with one reading and one writing task, many requests at a time.

A call hands its frame to the writing task whole and waits for the answer with its correlation id. Cancelling a call while
it waits leaves nothing half sent; its answer is dropped when it comes, and until then its place stays taken. A connection
that broke fails every waiting call with ConnectionLostError; making another one is up to the `connection` module's client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import trio

from ...protocol.errors import RemoteProtocolError, RequestError, RequestTimedOutError, TriologError
from ...protocol.native.connection import Idle, LastError, NativeConnection, Response
from ...protocol.native.messages import AuthenticateResponse, HelloResponse, RequestMessage, ResponseMessage
from ...protocol.types import Bytes
from .config import AddressSource, ClientConfig, address_text
from .errors import ConnectionLostError
from .exchange import (
    FIRST_ID,
    MAX_VECTOR,
    MIN_RECEIVE_BYTES,
    begin,
    expect,
    first_answer,
    following,
    greeting,
    is_answered,
    joined,
    read_answer,
    read_greeting,
    receive_size,
    remove_sent,
)
from .login import RENEWED_AT, LoginConfig, LoginSteps, login_steps
from .loops import Event, Stream, is_encrypted
from .running_loop import current_loop
from .tls import TlsConfig

OpenStream = Callable[[], Awaitable[Stream]]
"""Opens a stream to where the server is now; raises OSError when there is none."""

_BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class _Call:
    """A request that waits. Changed by the reading task, by the writing task, or by whoever loses the connection."""

    __slots__ = ("error", "event", "response")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.response: Response | None = None
        self.error: TriologError | None = None

    def fail(self, error: TriologError) -> None:
        self.error = error
        self.event.set()


class Connection:
    """A greeted connection. `run` is its two tasks; calls may come from any task until it is lost.

    Ctrl-C interrupts the program and none of these tasks: who has it can still use the connection, for a last commit.
    """

    def __init__(
        self,
        stream: Stream,
        protocol: NativeConnection,
        hello: HelloResponse,
        *,
        login: LoginConfig | None = None,
        lifetime_ms: int = 0,
    ) -> None:
        self._loop = current_loop()
        self._stream = stream
        self._protocol = protocol
        self._hello = hello
        self._login = login
        self._lifetime_ms = lifetime_ms  # of the login; 0: for ever
        self._next_id = FIRST_ID
        self._calls: dict[int, _Call] = {}  # awaiting their answers
        self._unsent: deque[tuple[list[Bytes], _Call | None]] = deque()  # with the call that waits for no more than this
        self._wake_writer = self._loop.event()
        self._room = self._loop.parking_lot()
        self._scope = self._loop.scope()
        self._lost: ConnectionLostError | None = None

    def __repr__(self) -> str:
        return f"<Connection {self._protocol!r}{f', lost: {self._lost}' if self._lost else ''}>"

    @property
    def hello(self) -> HelloResponse:
        """Return the server's response to the greeting."""
        return self._hello

    @property
    def is_lost(self) -> bool:
        """Return whether no further call can succeed."""
        return self._lost is not None

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Read and write until the connection is lost or this is cancelled; then every waiting call has failed."""
        try:
            with self._scope:
                async with self._loop.open_nursery() as nursery:
                    nursery.start_soon(self._read)
                    nursery.start_soon(self._write)
                    if self._lifetime_ms:
                        nursery.start_soon(self._renew_login)
        finally:
            self.lose(ConnectionLostError("the client was closed"))
            await self._loop.close_now(self._stream)

    async def _renew_login(self) -> None:
        """Before it ends, each time; other calls go on meanwhile."""
        lifetime_ms = self._lifetime_ms
        while lifetime_ms:
            await self._loop.sleep(lifetime_ms / 1000 * RENEWED_AT)
            try:
                lifetime_ms = await self._logged_in(lifetime_ms / 1000)
            except RequestError as exc:
                self.lose(ConnectionLostError(f"the login was not renewed: {exc.message}"))
                return

    async def _logged_in(self, timeout_s: float) -> int:
        steps = login_steps(self._login, self._hello, is_encrypted=is_encrypted(self._stream))
        request = next(steps)
        while True:
            answer = expect(AuthenticateResponse, await self.call(request, timeout_s))
            try:
                request = steps.send(answer)
            except StopIteration as stop:
                lifetime_ms: int = stop.value
                return lifetime_ms

    def lose(self, error: ConnectionLostError) -> None:
        """Fail every call that waits and end the tasks. Only the first reason counts."""
        if self._lost is not None:
            return
        self._lost = error
        self._scope.cancel()
        for call in self._calls.values():
            call.fail(error)
        for _, unanswered in self._unsent:
            if unanswered is not None:
                unanswered.fail(error)
        self._calls.clear()
        self._unsent.clear()
        self._room.unpark_all()

    async def call(self, request: RequestMessage, timeout_s: float) -> ResponseMessage | None:
        """Send a request and return its answer; None for a produce with acks 0, once it is handed to the kernel.

        Raises what the server answered; ConnectionLostError; RequestTimedOutError after `timeout_s`, and then the connection
        is lost too, because a server that does not answer is gone. Cancelled before it is sent, nothing has happened;
        after, the outcome is unknown.
        """
        loop = self._loop
        await loop.checkpoint_if_cancelled()
        with loop.scope(deadline=loop.now() + timeout_s) as scope:
            call = await self._start(request)
            await call.event.wait()
        if scope.cancelled_caught:
            error = RequestTimedOutError(f"no response to {request.api} within {timeout_s:g} s")
            self.lose(ConnectionLostError(f"stopped retrying: {error.message}"))
            raise error
        if call.error is not None:
            raise call.error.with_traceback(None)  # one error for all calls that waited
        if call.response is None:
            return None
        try:
            return read_answer(call.response)
        except RemoteProtocolError as exc:
            self.lose(ConnectionLostError(str(exc)))
            raise

    async def _start(self, request: RequestMessage) -> _Call:
        while self._lost is None and not self._protocol.can_send_request:
            await self._room.park()
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        pieces = begin(self._protocol, self._next_id, request)
        call = _Call(self._loop.event())
        if is_answered(request):
            self._calls[self._next_id] = call
            self._unsent.append((pieces, None))
        else:
            self._unsent.append((pieces, call))
        self._next_id = following(self._next_id)
        self._wake_writer.set()
        return call

    @trio.lowlevel.enable_ki_protection
    async def _write(self) -> None:
        while True:
            await self._wake_writer.wait()
            self._wake_writer = self._loop.event()
            while self._unsent:
                pieces: list[Bytes] = []
                unanswered: list[_Call] = []
                while self._unsent and len(pieces) < MAX_VECTOR:
                    frame, call = self._unsent.popleft()
                    pieces += frame
                    if call is not None:
                        unanswered.append(call)
                is_sent = False
                try:
                    await send_pieces(self._stream, pieces)
                    is_sent = True
                except _BROKEN as exc:
                    self.lose(ConnectionLostError(f"sending failed: {exc!r}"))
                finally:
                    for call in unanswered:
                        if is_sent:
                            call.event.set()
                        else:
                            call.fail(self._lost or ConnectionLostError("the client was closed"))

    @trio.lowlevel.enable_ki_protection
    async def _read(self) -> None:
        while self._lost is None:
            try:
                data = await self._stream.receive_some(receive_size(self._protocol))
                if self._lost is not None:  # meanwhile: nobody waits for these answers any more
                    return
                self._protocol.receive_data(data)
                self._handle_events()
            except _BROKEN as exc:
                self.lose(ConnectionLostError(f"receiving failed: {exc!r}"))
            except RemoteProtocolError as exc:
                self.lose(ConnectionLostError(f"the server violated the protocol: {exc}"))

    def _handle_events(self) -> None:
        while not isinstance(event := self._protocol.next_event(), Idle):
            if isinstance(event, LastError):
                self.lose(ConnectionLostError(f"the server ended the connection: {event.error}"))
                return
            assert isinstance(event, Response), f"{event!r} at a client"
            call = self._calls.pop(event.correlation_id)
            call.response = event
            call.event.set()
            self._room.unpark()
        if event is Idle.CONNECTION_CLOSED:
            self.lose(ConnectionLostError("the server closed the connection"))


class TcpOpener:
    """Opens TCP connections to where `address` says at that moment, and encrypts them where that is wanted. `where` is the last
    one, for messages."""

    def __init__(self, address: AddressSource, tls: TlsConfig | None = None) -> None:
        self._address = address
        self._context = None if tls is None else tls.context()
        self.where = ""

    async def __call__(self) -> Stream:
        address = self._address() if callable(self._address) else self._address
        self.where = address_text(address)
        return await current_loop().open_tcp(address, self._context)


async def greet(open_stream: OpenStream, config: ClientConfig) -> Connection:
    """Open a stream, say hello and log in. Raises ConnectionLostError, or the server's refusal; closes the stream then."""
    loop = current_loop()
    timeout_s = config.connect_timeout_ms / 1000
    stream: Stream | None = None
    connection: Connection | None = None
    try:
        with loop.scope(deadline=loop.now() + timeout_s):
            stream = await open_stream()
            protocol, pieces = greeting(config)
            await send_pieces(stream, pieces)
            while (event := protocol.next_event()) is Idle.NEED_DATA:
                protocol.receive_data(await stream.receive_some(MIN_RECEIVE_BYTES))
            hello = read_greeting(event, protocol)
            steps = login_steps(config.login, hello, is_encrypted=is_encrypted(stream))
            lifetime_ms = await _log_in(stream, protocol, steps)
            connection = Connection(stream, protocol, hello, login=config.login, lifetime_ms=lifetime_ms)
            return connection
    except ConnectionLostError as exc:
        raise _not_connected(open_stream, exc.message) from exc
    except (*_BROKEN, RemoteProtocolError) as exc:
        raise _not_connected(open_stream, str(exc)) from exc
    finally:
        if stream is not None and connection is None:
            await loop.close_now(stream)
    raise _not_connected(open_stream, f"no response within {timeout_s:g} s")


async def _log_in(stream: Stream, protocol: NativeConnection, steps: LoginSteps) -> int:
    """Go through a login, where there is one, before anything else is sent; answers for how many ms it holds."""
    answer: Any = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            lifetime_ms: int = stop.value
            return lifetime_ms
        await send_pieces(stream, begin(protocol, FIRST_ID, request))
        while (event := protocol.next_event()) is Idle.NEED_DATA:
            protocol.receive_data(await stream.receive_some(MIN_RECEIVE_BYTES))
        answer = first_answer(event, request.api)


def _not_connected(open_stream: OpenStream, reason: str) -> ConnectionLostError:
    to = f" to {open_stream.where}" if isinstance(open_stream, TcpOpener) and open_stream.where else ""
    return ConnectionLostError(f"could not connect{to}: {reason}")


async def send_pieces(stream: Stream, pieces: Sequence[Bytes]) -> None:
    """Send the buffers in order; together, where the stream is a plain socket."""
    buffers = joined(pieces)
    if not isinstance(stream, trio.SocketStream):
        for buffer in buffers:
            await stream.send_all(buffer)
        return
    while buffers:
        remove_sent(buffers, await stream.socket.sendmsg(buffers[:MAX_VECTOR]))
