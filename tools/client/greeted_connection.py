"""A greeted connection: a stream with one reading and one writing task, many requests at a time.

A call hands its frame to the writing task whole and waits for the answer with its correlation id. Cancelling a call while
it waits leaves nothing half sent; its answer is dropped when it comes, and until then its place stays taken. A connection
that broke fails every waiting call with ConnectionLostError; making another one is up to the `connection` module's client.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from ...protocol.errors import RemoteProtocolError, RequestError, RequestTimedOutError, TriologError
from ...protocol.native.connection import Idle, LastError, NativeConnection, Response
from ...protocol.native.messages import (
    AuthenticateRequest,
    AuthenticateResponse,
    HelloResponse,
    RequestMessage,
    ResponseMessage,
)
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
)
from .login import RENEWED_AT, LoginConfig, LoginSteps, login_steps
from .loops import Event, Loop, Stream, uninterrupted
from .running_loop import current_loop
from .tls import TlsConfig

OpenStream = Callable[[], Awaitable[Stream]]
"""Opens a stream to where the server is now; raises OSError when there is none."""


class Call:
    """A request that waits. Changed by the reading task, by the writing task, or by whoever loses the connection."""

    __slots__ = ("api", "error", "event", "is_done", "response")

    def __init__(self, api: str, event: Event) -> None:
        self.api = api
        self.event = event
        self.is_done = False
        self.response: Response | None = None
        self.error: TriologError | None = None

    def succeed(self, response: Response | None) -> None:
        """It is answered, or sent where no answer is due."""
        self.response = response
        self._end()

    def fail(self, error: TriologError) -> None:
        """There will be no answer."""
        self.error = error
        self._end()

    def _end(self) -> None:
        self.is_done = True
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
        self._renewed = self._loop.event()
        self._hold_login(lifetime_ms)
        self._next_id = FIRST_ID
        self._calls: dict[int, Call] = {}  # awaiting their answers
        self._unsent: deque[tuple[list[Bytes], Call | None]] = deque()  # with the call that waits for no more than this
        self._wake_writer = self._loop.event()
        self._is_sending = False
        self._sent: Event | None = None  # set when there is nothing to send
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

    @uninterrupted
    async def run(self) -> None:
        """Read and write until the connection is lost or this is cancelled; then every waiting call has failed."""
        try:
            with self._scope:
                async with self._loop.open_nursery() as nursery:
                    nursery.start_soon(self._unless_interrupted, self._read)
                    nursery.start_soon(self._unless_interrupted, self._write)
                    if self._lifetime_ms:
                        nursery.start_soon(self._renew_login)
        finally:
            self.lose(ConnectionLostError("the client was closed"))
            await self._loop.close_now(self._stream)

    @uninterrupted
    async def _unless_interrupted(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except KeyboardInterrupt:
            self.lose(ConnectionLostError("interrupted while it sent or received"))
            raise

    async def _renew_login(self) -> None:
        """Renew the login each time before it ends. Calls that begin after it is due wait until it is renewed."""
        while self._lifetime_ms:
            await self._loop.sleep(max(0.0, self._renew_at - self._loop.now()))
            try:
                self._hold_login(await self._logged_in(self._lifetime_ms / 1000))
            except RequestError as exc:
                self.lose(ConnectionLostError(f"the login was not renewed: {exc.message}"))
                return
            renewed, self._renewed = self._renewed, self._loop.event()
            renewed.set()

    def _hold_login(self, lifetime_ms: int) -> None:
        """The user has logged in for `lifetime_ms`, 0 for ever."""
        self._lifetime_ms = lifetime_ms
        self._renew_at = self._loop.now() + lifetime_ms / 1000 * RENEWED_AT if lifetime_ms else float("inf")

    async def _logged_in(self, timeout_s: float) -> int:
        steps = login_steps(self._login, self._hello, is_encrypted=self._loop.is_encrypted(self._stream))
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
        self._nothing_to_send()
        self._renewed.set()
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
            call = await self._begin(request)
            await call.event.wait()
        if scope.cancelled_caught:
            raise self._give_up(request.api, timeout_s)
        return self._answer(call)

    async def start(self, request: RequestMessage, timeout_s: float) -> Call:
        """Send a request, whose answer `finish` waits for; returns once it is handed to the kernel. Raises as `call`."""
        with self._loop.scope(deadline=self._loop.now() + timeout_s) as scope:
            call = await self._begin(request)
            if self._unsent or self._is_sending:
                self._sent = self._sent or self._loop.event()
                await self._sent.wait()
        if scope.cancelled_caught:
            raise self._give_up(request.api, timeout_s)
        return call

    async def finish(self, call: Call, timeout_s: float) -> ResponseMessage | None:
        """Wait for the answer to what `start` has sent. Raises as `call`."""
        with self._loop.scope(deadline=self._loop.now() + timeout_s) as scope:
            await call.event.wait()
        if scope.cancelled_caught:
            raise self._give_up(call.api, timeout_s)
        return self._answer(call)

    def _give_up(self, api: str, timeout_s: float) -> RequestTimedOutError:
        error = RequestTimedOutError(f"no response to {api} within {max(0.0, timeout_s):g} s")
        self.lose(ConnectionLostError(f"stopped retrying: {error.message}"))
        return error

    def _answer(self, call: Call) -> ResponseMessage | None:
        if call.error is not None:
            raise call.error.with_traceback(None)  # one error for all calls that waited
        if call.response is None:
            return None
        try:
            return read_answer(call.response)
        except RemoteProtocolError as exc:
            self.lose(ConnectionLostError(str(exc)))
            raise

    async def _begin(self, request: RequestMessage) -> Call:
        if self._loop.now() >= self._renew_at and not isinstance(request, AuthenticateRequest):
            await self._renewed.wait()  # the login may have ended: the program was away, or its machine was busy
        while self._lost is None and not self._protocol.can_send_request:
            await self._room.park()
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        pieces = begin(self._protocol, self._next_id, request)
        call = Call(request.api, self._loop.event())
        if is_answered(request):
            self._calls[self._next_id] = call
        self._next_id = following(self._next_id)
        if self._loop.send_at_once is not None and not self._unsent and not self._is_sending:
            pieces = joined(pieces)
            try:
                self._loop.send_at_once(self._stream, pieces)
            except self._loop.broken as exc:
                error = ConnectionLostError(f"sending failed: {exc!r}")
                self.lose(error)
                raise error from exc
        if pieces:
            self._unsent.append((pieces, None if is_answered(request) else call))
            self._wake_writer.set()
        elif not is_answered(request):
            call.succeed(None)
        return call

    @uninterrupted
    async def _write(self) -> None:
        while True:
            await self._wake_writer.wait()
            self._wake_writer = self._loop.event()
            self._is_sending = True
            while self._unsent:
                pieces: list[Bytes] = []
                unanswered: list[Call] = []
                while self._unsent and len(pieces) < MAX_VECTOR:
                    frame, call = self._unsent.popleft()
                    pieces += frame
                    if call is not None:
                        unanswered.append(call)
                is_sent = False
                try:
                    await self._loop.send_buffers(self._stream, joined(pieces))
                    is_sent = True
                except self._loop.broken as exc:
                    self.lose(ConnectionLostError(f"sending failed: {exc!r}"))
                finally:
                    for call in unanswered:
                        if is_sent:
                            call.succeed(None)
                        else:
                            call.fail(self._lost or ConnectionLostError("the client was closed"))
            self._is_sending = False
            self._nothing_to_send()

    def _nothing_to_send(self) -> None:
        if self._sent is not None:
            self._sent.set()
            self._sent = None

    @uninterrupted
    async def _read(self) -> None:
        while self._lost is None:
            try:
                data = await self._stream.receive_some(receive_size(self._protocol))
                if self._lost is not None:  # meanwhile: nobody waits for these answers any more
                    return
                self._protocol.receive_data(data)
                del data  # up to a megabyte, until the next comes
                self._handle_events()
            except self._loop.broken as exc:
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
            call.succeed(event)
            self._room.unpark()
        if event is Idle.CONNECTION_CLOSED:
            self.lose(ConnectionLostError("the server closed the connection"))


class TcpOpener:
    """Opens TCP connections to where `address` says at that moment, and encrypts them where that is wanted. `where` is the last
    one, for messages."""

    def __init__(self, address: AddressSource, tls: TlsConfig | None = None) -> None:
        self._address = address
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        self.where = ""

    def load(self) -> ssl.SSLContext | None:
        """Read the files for TLS, the first time. Raises OSError for what cannot be used."""
        if self._context is None and self._tls is not None:
            self._context = self._tls.context()
        return self._context

    async def __call__(self) -> Stream:
        address = self._address() if callable(self._address) else self._address
        self.where = address_text(address)
        return await current_loop().open_tcp(address, self.load())


async def greet(open_stream: OpenStream, config: ClientConfig, timeout_s: float) -> Connection:
    """Open a stream, say hello and log in. Raises ConnectionLostError, or the server's refusal; closes the stream then."""
    loop = current_loop()
    broken: tuple[type[BaseException], ...] = (*loop.broken, RemoteProtocolError)
    stream: Stream | None = None
    connection: Connection | None = None
    try:
        with loop.scope(deadline=loop.now() + timeout_s):
            stream = await open_stream()
            protocol, pieces = greeting(config)
            await loop.send_buffers(stream, joined(pieces))
            while (event := protocol.next_event()) is Idle.NEED_DATA:
                protocol.receive_data(await stream.receive_some(MIN_RECEIVE_BYTES))
            hello = read_greeting(event, protocol)
            steps = login_steps(config.login, hello, is_encrypted=loop.is_encrypted(stream))
            lifetime_ms = await _log_in(loop, stream, protocol, steps)
            connection = Connection(stream, protocol, hello, login=config.login, lifetime_ms=lifetime_ms)
            return connection
    except ConnectionLostError as exc:
        raise _not_connected(open_stream, exc.message) from exc
    except broken as exc:
        raise _not_connected(open_stream, str(exc)) from exc
    finally:
        if stream is not None and connection is None:
            await loop.close_now(stream)
    raise _not_connected(open_stream, f"no response within {max(0.0, timeout_s):g} s")


async def _log_in(loop: Loop, stream: Stream, protocol: NativeConnection, steps: LoginSteps) -> int:
    """Go through a login, where there is one, before anything else is sent; answers for how many ms it holds."""
    answer: Any = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            lifetime_ms: int = stop.value
            return lifetime_ms
        await loop.send_buffers(stream, joined(begin(protocol, FIRST_ID, request)))
        while (event := protocol.next_event()) is Idle.NEED_DATA:
            protocol.receive_data(await stream.receive_some(MIN_RECEIVE_BYTES))
        answer = first_answer(event, request.api)


def _not_connected(open_stream: OpenStream, reason: str) -> ConnectionLostError:
    to = f" to {open_stream.where}" if isinstance(open_stream, TcpOpener) and open_stream.where else ""
    return ConnectionLostError(f"could not connect{to}: {reason}")
