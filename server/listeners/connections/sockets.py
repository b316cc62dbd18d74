"""Listening sockets: accept, hand each connection to its session, stop accepting and let sessions finish.

`Places` has a place for each connection: `max_connections` of all listeners together, each listener with some that no other one
takes.

A connection is a newcomer until its peer has shown who it is: by its hello or its login, or, where neither is asked for, by a
first request. When there is no place for another one the oldest newcomer goes, so that peers which say nothing keep nobody out;
when there is none either, it waits to be accepted. A connection whose peer is known goes for nobody.

Over HTTP nobody shows who it is. A connection counts as a newcomer except while its request is being answered; once it was
answered, or was sent a piece of the answer, it is the youngest again. Where answers change nothing, a connection that is being
answered goes when no other one can.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import attrs
import trio

from ...broker import ClientQuotas
from ...config.broker_config import Address, BrokerConfig
from ...loop.reactor import Reactor
from ...loop.turns import Gathering
from .budget import InFlightBudget
from .counters import NEWCOMER, OUT_OF_MEMORY, ProtocolCounters, report_bug
from .session import Session
from .tls import TlsServer, TlsTransport
from .transport import MIN_RECEIVE_BYTES, Transport, UnsentAnswers, host_of

LOGGER: Final = logging.getLogger(__name__)

NOT_LISTENING: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK})
"""What accepting fails with for ever. All else is a lack that passes (descriptors, memory), or about one connection."""
ACCEPT_PAUSE_S: Final = 0.1
BACKLOG: Final = 512
KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""In seconds, and probes: a peer that vanished is found out within a minute. macOS calls the first one TCP_KEEPALIVE."""
PORT_ATTEMPTS: Final = 10
"""At a port that is free on every address of a host: one that the system chose for the first may be taken on the second."""


class Accepts(Protocol):
    """A listening socket, as a Listener knows it; closed at the end of its block."""

    @property
    def socket(self) -> trio.socket.SocketType: ...
    async def accept(self) -> trio.SocketStream: ...
    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *raised: Any) -> None: ...


OpenSockets = Callable[[Address], Awaitable[Sequence[Accepts]]]

_SOCKETS: Final[weakref.WeakSet[trio.socket.SocketType]] = weakref.WeakSet()
"""Those of this process that listen or were accepted."""


def _close_copies() -> None:
    """Close the copies that a forked process has: with them, clients would not notice the end of the server's process."""
    for each in list(_SOCKETS):
        if each.fileno() >= 0:
            os.close(each.detach())


os.register_at_fork(after_in_child=_close_copies)


class Served(NamedTuple):
    """A connection that is being served: how, and how to let it take no more requests."""

    serve: Callable[[], Awaitable[None]]
    stop_reading: Callable[[], None]
    session: Session[Any] | None = None
    """None where nobody lists it."""


@attrs.frozen
class Admission:
    """The state that the connections of all listeners of a broker share."""

    places: Places
    budget: InFlightBudget
    answers: UnsentAnswers
    protocols: dict[str, ProtocolCounters] = attrs.field(factory=dict)
    """What they have counted, by protocol."""
    quotas: ClientQuotas = attrs.field(factory=ClientQuotas)
    """Which say how many connections an address may make."""
    listeners: list[Listener] = attrs.field(factory=list)
    """Those that run."""

    @classmethod
    def of(
        cls,
        config: BrokerConfig,
        protocols: dict[str, ProtocolCounters] | None = None,
        *,
        quotas: ClientQuotas | None = None,
    ) -> Admission:
        limited = cls.with_limits(config.max_connections, config.max_broker_in_flight_bytes, protocols)
        return limited if quotas is None else attrs.evolve(limited, quotas=quotas)

    @classmethod
    def with_limits(cls, connections: int, memory: int, protocols: dict[str, ProtocolCounters] | None = None) -> Admission:
        """`memory`: for requests, and as much again for answers."""
        counted = {} if protocols is None else protocols
        return cls(Places(connections), InFlightBudget(memory), UnsentAnswers(memory), counted)

    def counters(self, protocol: str) -> ProtocolCounters:
        """The one place where all connections of a protocol count."""
        return self.protocols.setdefault(protocol, ProtocolCounters(protocol))


async def open_sockets(address: Address) -> list[trio.SocketListener]:
    """A listener for every address of the host, all on one port, whoever chooses it. Raises OSError."""
    for _ in range(PORT_ATTEMPTS):
        listeners = await trio.open_tcp_listeners(address.port, host=address.host, backlog=BACKLOG)
        if address.port or len(listeners) == 1:
            return listeners
        first, *others = listeners
        port = first.socket.getsockname()[1]
        hosts = [listener.socket.getsockname()[0] for listener in others]
        for listener in others:
            listener.socket.close()
        same = [first]
        try:
            for host in hosts:
                same += await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
            return same
        except BaseException as exc:
            for listener in same:
                listener.socket.close()
            if not isinstance(exc, OSError) or exc.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"no port is free on all addresses of {address.host}")


@attrs.define(eq=False, repr=False)
class Listener:
    """A listener for one protocol on one address. `open` creates a session of an accepted connection, `run` is its task."""

    address: Address
    admission: Admission
    open: Callable[[Transport], Served]
    protocol: str = "other"
    """Under which name its connections are counted."""
    tls: TlsServer | None = None
    """None: bytes as they are."""
    gathering: Gathering = attrs.field(factory=Gathering)
    """Of the broker, whose answers leave together."""
    open_sockets: OpenSockets = open_sockets
    _handshakes: set[trio.CancelScope] = attrs.field(factory=set)
    listens_on: str = ""
    """While it runs, the address."""
    _served: dict[Served, float] = attrs.field(factory=dict)
    """Each with when it began, in trio's time."""
    _accepting: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _reactor: Reactor = attrs.field(init=False)
    _places: ListenerPlaces = attrs.field(init=False)
    _connections: trio.Nursery | None = None
    _stopping: trio.Event = attrs.field(factory=trio.Event)

    @property
    def connections(self) -> int:
        return len(self._served)

    def sessions(self) -> Iterator[tuple[Session[Any], float]]:
        """Those that are served, each with when it began, in trio's time."""
        return ((served.session, since) for served, since in self._served.items() if served.session is not None)

    async def run(self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`; the status is the address that is really listened on. OSError when it is taken."""
        try:
            listeners = await self.open_sockets(self.address)
        except OSError as exc:
            raise OSError(exc.errno, f"cannot listen on {self.address}: {exc.strerror}. Choose another address") from exc
        _SOCKETS.update(each.socket for each in listeners)
        address = _address_in(listeners[0].socket.getsockname())
        self._places = self.admission.places.open()
        self._reactor = reactor = Reactor(self.gathering)
        self.listens_on = f"{address.host}:{address.port}"
        self.admission.listeners.append(self)
        try:
            async with trio.open_nursery() as beside:
                beside.start_soon(reactor.run)
                beside.start_soon(reactor.deadlines.run)
                async with trio.open_nursery() as nursery:
                    self._connections = nursery
                    with self._accepting:
                        async with trio.open_nursery() as accepting:
                            for listener in listeners:
                                accepting.start_soon(self._accept, listener, nursery)
                            task_status.started(address)
                beside.cancel_scope.cancel()
        finally:
            reactor.close()
            self.admission.listeners.remove(self)
            self.admission.places.close(self._places)

    async def _accept(self, listener: Accepts, nursery: trio.Nursery) -> None:
        async with listener:
            while True:
                try:
                    stream = await listener.accept()
                except (OSError, MemoryError) as exc:
                    if isinstance(exc, OSError) and exc.errno in NOT_LISTENING:
                        raise
                    self._log_not_accepted(exc)
                    await trio.sleep(ACCEPT_PAUSE_S)
                    continue
                scope = trio.CancelScope()
                try:
                    has_ended_one = await self._places.take(scope)
                except BaseException:
                    await trio.aclose_forcefully(stream)
                    raise
                if has_ended_one:
                    self.admission.counters(self.protocol).end(NEWCOMER)
                nursery.start_soon(self._serve, stream, scope)

    def _log_not_accepted(self, error: OSError | MemoryError) -> None:
        left_out = self.admission.counters(self.protocol).said.left_out(self.address, trio.current_time())
        if left_out is not None:
            LOGGER.error(
                "accepting on %s failed (%s), %d times since the last log line. New connections wait until a retry succeeds.",
                self.address,
                error or "no memory",
                left_out + 1,
            )

    async def _serve(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        """Serve a connection to its end. What it ends with is nobody else's matter, but for a cancellation."""
        _SOCKETS.add(stream.socket)
        counters = self.admission.counters(self.protocol)
        counters.connections += 1
        counters.accepted += 1
        peer = _peer_of(stream)
        try:
            with scope:
                if self.admission.quotas.limits_connections and await self._is_above_quota(peer):
                    return
                await self._serve_stream(stream, peer, counters, scope)
        except* MemoryError:
            counters.end(OUT_OF_MEMORY)
            if (left_out := counters.said.left_out(OUT_OF_MEMORY, trio.current_time())) is not None:
                said = "the connection of %s (%s) is ended: there was no memory for it, nor for %d before it"
                LOGGER.error(said, peer, self.protocol, left_out)
        except* Exception as errors:
            report_bug(counters, f"the connection of {peer} ({self.protocol})", errors)
        finally:
            stream.socket.close()
            counters.connections -= 1
            self._places.leave(scope)

    async def _is_above_quota(self, peer: str) -> bool:
        """Return whether the peer's address makes too many connections. The result comes after a delay that reveals nothing,
        because an immediate disconnect invites an immediate retry."""
        seconds = self.admission.quotas.connect(host_of(peer), trio.current_time())
        if seconds:
            LOGGER.debug("disconnecting %s in %g s: its address is over its connection quota", peer, seconds)
            with trio.move_on_after(seconds):
                await self._stopping.wait()
        return seconds > 0

    async def _serve_stream(
        self, stream: trio.SocketStream, peer: str, counters: ProtocolCounters, scope: trio.CancelScope
    ) -> None:
        _set_options(stream)
        plain = Transport(
            stream,
            peer,
            counters,
            self.admission.answers,
            self.gathering,
            self._reactor,
            is_pressed=self.admission.budget.pressed,
            most_received_bytes=MIN_RECEIVE_BYTES,
            became_known=partial(self._places.known, scope),
            became_idle=partial(self._places.idle, scope),
        )
        transport = plain if self.tls is None else await self._encrypted(plain, self.tls)
        if transport is not None:
            await self._serve_on(transport)

    async def _serve_on(self, transport: Transport) -> None:
        served = self.open(transport)
        self._served[served] = trio.current_time()
        if self._stopping.is_set():
            served.stop_reading()
        try:
            await served.serve()
        finally:
            del self._served[served]

    async def _encrypted(self, plain: Transport, tls: TlsServer) -> Transport | None:
        """The connection once keys are agreed on; None when they are not, and it is closed."""
        transport = TlsTransport.over(plain, tls.context)
        is_agreed = False
        try:
            if (why := await self._handshake(transport, tls.handshake_timeout_s)) is None:
                is_agreed = True
                return transport
            LOGGER.info("TLS handshake with %s failed: %s", plain.peer, why)
            tls.failed()
            if not self._stopping.is_set():
                await plain.linger()  # what the peer was told about it would be lost otherwise
            return None
        finally:
            if not is_agreed:
                await trio.aclose_forcefully(plain.stream)

    async def _handshake(self, transport: TlsTransport, timeout_s: float) -> str | None:
        why: str | None = "the server stops"
        with trio.CancelScope() as scope:
            self._handshakes.add(scope)
            if self._stopping.is_set():
                scope.cancel()
            try:
                why = await transport.handshake(timeout_s)
            finally:
                self._handshakes.discard(scope)
        return why

    def stop(self, grace_s: float) -> None:
        """Stop accepting and taking requests; sessions have `grace_s` to answer what they took."""
        self._stopping.set()
        self._accepting.cancel()
        for handshake in list(self._handshakes):
            handshake.cancel()
        for served in list(self._served):
            served.stop_reading()
        if self._connections is not None:
            deadline = trio.current_time() + grace_s
            self._connections.cancel_scope.deadline = min(self._connections.cancel_scope.deadline, deadline)


def _set_options(stream: trio.SocketStream) -> None:
    with contextlib.suppress(OSError):  # the peer is gone already
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if (option := getattr(socket, name, None)) is not None:
                stream.setsockopt(socket.IPPROTO_TCP, option, value)


def _peer_of(stream: trio.SocketStream) -> str:
    try:
        peer = _address_in(stream.socket.getpeername())
    except OSError:
        return "a peer that is gone"
    return f"{peer.host}:{peer.port}"


def _address_in(name: Any) -> Address:
    """Return the address in the name of a socket. That of a Unix socket is a path, and its peers have none."""
    return Address(name or "unix", 0) if isinstance(name, str) else Address(*name[:2])


KEPT_SHARE: Final = 8
"""A part of all places of this size is kept for the listeners, divided equally."""


@attrs.define(eq=False, repr=False)
class Places:
    """Owner: the listeners of a broker."""

    limit: int
    ends_busy: bool = False
    """Whether a connection that is being answered goes when no newcomer can."""
    _listeners: dict[ListenerPlaces, None] = attrs.field(factory=dict)
    _left: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    def open(self) -> ListenerPlaces:
        """Those of one more listener; `close` ends it."""
        places = ListenerPlaces(self)
        self._listeners[places] = None
        return places

    def close(self, places: ListenerPlaces) -> None:
        self._listeners.pop(places, None)
        self.left()

    def has_room(self, asking: ListenerPlaces) -> bool:
        """Return whether the listener may accept another connection, given the reserve of the other listeners."""
        kept = self._kept()
        others = sum(max(kept, len(each.connections)) for each in self._listeners if each is not asking)
        return len(asking.connections) + others < self.limit

    def _kept(self) -> int:
        return self.limit // (KEPT_SHARE * len(self._listeners))

    def end_newcomer(self, asking: ListenerPlaces) -> bool:
        """End one for another that asks, of its own listener if there is one; whether there is any to be ended."""
        kept = self._kept()
        others = (each for each in self._listeners if each is not asking and len(each.connections) > kept)
        for places in (asking, *others):
            if places.newcomers:
                oldest = next(iter(places.newcomers))
                places.leave(oldest)
                oldest.cancel()
                return True
        if self.ends_busy and asking.connections:
            oldest = next(iter(asking.connections))
            asking.leave(oldest)
            oldest.cancel()
            return True
        return False

    async def wait(self) -> None:
        """Until a connection has left."""
        await self._left.park()

    def left(self) -> None:
        """Somebody may come in."""
        if self._left:
            self._left.unpark_all()


@attrs.define(eq=False, repr=False)
class ListenerPlaces:
    """The places of one listener. A connection is named by the scope that ends it."""

    places: Places
    connections: dict[trio.CancelScope, None] = attrs.field(factory=dict)
    newcomers: dict[trio.CancelScope, None] = attrs.field(factory=dict)
    """Those whose peers are not known yet, the oldest first."""

    async def take(self, connection: trio.CancelScope) -> bool:
        """Give a newcomer its place, waiting for one. Answers whether another one had to go for it."""
        has_ended_one = False
        while not self.places.has_room(self):
            if self.places.end_newcomer(self):
                has_ended_one = True
            else:
                await self.places.wait()
        self.connections[connection] = self.newcomers[connection] = None
        return has_ended_one

    def known(self, connection: trio.CancelScope) -> None:
        """Its peer has shown who it is; the connection goes for nobody any more."""
        self.newcomers.pop(connection, None)

    def idle(self, connection: trio.CancelScope) -> None:
        """Count it as the youngest newcomer: it was answered."""
        if connection in self.connections:
            self.newcomers.pop(connection, None)
            self.newcomers[connection] = None
            self.places.left()

    def leave(self, connection: trio.CancelScope) -> None:
        """Free a place; a second time does nothing."""
        self.newcomers.pop(connection, None)
        if connection in self.connections:
            del self.connections[connection]
            self.places.left()
