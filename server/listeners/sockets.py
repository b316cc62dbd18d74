"""Listening sockets: accept, hand each connection to its session, stop accepting and let sessions finish."""

from __future__ import annotations

import errno
import logging
from typing import Final

import attrs
import trio

from ...protocol.native.connection import NativeConnection
from ...protocol.native.state import Role
from ..broker import Broker
from ..broker_config import Address
from .budget import InFlightBudget
from .native import serve_session, server_version
from .session import Session

LOGGER: Final = logging.getLogger(__name__)

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
ACCEPT_PAUSE_S: Final = 0.1
BACKLOG: Final = 512
PORT_ATTEMPTS: Final = 10
"""At a port that is free on every address of a host: one that the system chose for the first may be taken on the second."""


@attrs.define(eq=False)
class NativeListener:
    """The native protocol on one address. `run` is its task."""

    broker: Broker
    address: Address
    _sessions: set[Session] = attrs.field(factory=set)
    _accepting: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _connections: trio.Nursery | None = None
    _is_stopping: bool = False

    @property
    def connections(self) -> int:
        return len(self._sessions)

    async def run(self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`; the status is the address that is really listened on. OSError when it is taken."""
        config = self.broker.config
        try:
            listeners = await _listen(self.address)
        except OSError as exc:
            raise OSError(exc.errno, f"cannot listen on {self.address}: {exc.strerror}; choose another address") from exc
        host, port = listeners[0].socket.getsockname()[:2]
        budget = InFlightBudget(config.max_broker_in_flight_bytes)
        version = server_version()
        slots = trio.Semaphore(config.max_connections)
        async with trio.open_nursery() as nursery:
            self._connections = nursery
            with self._accepting:
                async with trio.open_nursery() as accepting:
                    for listener in listeners:
                        accepting.start_soon(self._accept, listener, nursery, budget, slots, version)
                    task_status.started(Address(host=host, port=port))

    async def _accept(
        self,
        listener: trio.SocketListener,
        nursery: trio.Nursery,
        budget: InFlightBudget,
        slots: trio.Semaphore,
        version: str,
    ) -> None:
        async with listener:
            while True:
                await slots.acquire()
                try:
                    stream = await listener.accept()
                except OSError as exc:
                    slots.release()
                    if exc.errno not in OUT_OF_DESCRIPTORS:
                        raise
                    LOGGER.error("accepting failed (%s); trying again", exc)
                    await trio.sleep(ACCEPT_PAUSE_S)
                except BaseException:
                    slots.release()
                    raise
                else:
                    nursery.start_soon(self._serve, stream, budget, slots, version)

    async def _serve(self, stream: trio.SocketStream, budget: InFlightBudget, slots: trio.Semaphore, version: str) -> None:
        config = self.broker.config
        connection = NativeConnection(
            Role.SERVER,
            max_frame_bytes=config.max_frame_bytes,
            max_in_flight=config.max_in_flight,
            max_in_flight_bytes=config.max_in_flight_bytes,
        )
        session = Session(stream, connection, budget, _peer_of(stream))
        self._sessions.add(session)
        if self._is_stopping:
            session.stop_reading()
        try:
            await serve_session(session, self.broker, version=version)
        finally:
            self._sessions.discard(session)
            slots.release()

    def stop(self, grace_s: float) -> None:
        """Stop accepting and taking requests; sessions have `grace_s` to answer what they took."""
        self._is_stopping = True
        self._accepting.cancel()
        for session in self._sessions:
            session.stop_reading()
        if self._connections is not None:
            deadline = trio.current_time() + grace_s
            self._connections.cancel_scope.deadline = min(self._connections.cancel_scope.deadline, deadline)


async def _listen(address: Address) -> list[trio.SocketListener]:
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


def _peer_of(stream: trio.SocketStream) -> str:
    try:
        host, port = stream.socket.getpeername()[:2]
    except OSError:
        return "a peer that is gone"
    return f"{host}:{port}"
