"""The listeners of several nodes: each can be taken down and put up on its port. Connections outlive their broker: a reset
gives their sockets to the next life. For tests only.

In a reset, what is under way is answered with an error after which clients ask again, as they do when a broker was restarted. A
connection with a login, with TLS, with half a request or with unsent answers ends instead, and so does one whose request has no
such error.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import trio

from ....protocol.errors import ErrorCode
from ....protocol.kafka.apis import APIS, Api, ApiKey, ServedBy
from ....protocol.kafka.connection import Request
from ...broker import Broker
from ...config.broker_config import Address
from ...listeners.connections.sockets import Admission, Listener, OpenSockets, open_sockets
from ...listeners.connections.tls import TlsServer
from ...listeners.kafka.calls import listener_of
from ...listeners.kafka.door import Node
from ...listeners.kafka.error_answers import error_response
from ...listeners.kafka.session import KafkaSession, Turn
from ...listeners.opening import Listeners
from .nodes import NodeDoor, Nodes
from .watched import Watch


@attrs.define(eq=False, repr=False)
class NodeListener:
    """The listener of a node. Its task is in `nursery`, in a scope of its own."""

    door: NodeDoor
    address: Address
    admission: Admission
    watch: Watch
    nursery: trio.Nursery
    tls: TlsServer | None = None
    open_sockets: OpenSockets = open_sockets
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _ended: trio.Event | None = None

    async def start(self) -> None:
        """Start listening, unless it listens already. Raises OSError."""
        if self._ended is None:
            await self.nursery.start(self._run)

    async def _run(self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        listener: Listener = listener_of(self.door, self.address, self.admission, self.watch)
        listener.tls, listener.open_sockets = self.tls, self.open_sockets
        ended = self._ended = trio.Event()
        try:
            with trio.CancelScope() as self._scope:
                await listener.run(task_status=task_status)
        finally:
            self._ended = None
            ended.set()

    async def stop(self) -> None:
        """Stop listening and end all connections; returns when they have ended."""
        ended = self._ended
        if ended is not None:
            self._scope.cancel()
            await ended.wait()


def nodes_of(first_id: int, addresses: Sequence[Address]) -> Nodes:
    """Nodes at these addresses, with consecutive ids from `first_id` on."""
    listed = {first_id + number: Node(first_id + number, *each) for number, each in enumerate(map(_pair, addresses))}
    return Nodes(first_id, listed)


def _pair(address: Address) -> tuple[str, int]:
    return address.host, address.port


async def listen_as_nodes(
    broker: Broker, nodes: Nodes, beside: Listeners, watch: Watch, apis: dict[int, Api] | None, nursery: trio.Nursery
) -> dict[int, NodeListener]:
    """Start a listener for each node that is not down, in tasks of `nursery`. Connections share limits and TLS with `beside`.
    Raises OSError, InvalidConfigError."""
    admission, tls = beside.admission, beside.kafka_tls()
    listeners = {}
    for number, node in nodes.addresses.items():
        door = NodeDoor(broker, apis=APIS if apis is None else apis, number=number, cluster=nodes)
        listeners[number] = NodeListener(
            door, Address(node.host, node.port), admission, watch, nursery, tls, beside.open_sockets
        )
        if number not in nodes.down:
            await listeners[number].start()
    return listeners


FIRST_FETCH_WITH_SESSIONS: Final = 7


def hand_over(listener: Listener) -> Iterator[socket.socket]:
    """Take no more requests on a listener's connections; yield another handle of each socket that can go on."""
    for session, _ in list(listener.sessions()):
        if isinstance(session, KafkaSession) and listener.tls is None and not session.logs_in:
            stream = session.transport.stream.socket
            with contextlib.suppress(OSError):  # it is closed already, or there are no more descriptors
                if _end_turns(session):
                    yield socket.fromfd(stream.fileno(), stream.family, stream.type)


def _end_turns(session: KafkaSession) -> bool:
    """End the turns of a session; return whether the peer has a response to each of its requests."""
    turns = session.turns_to_end() if session.transport.is_open else None
    return turns is not None and all(map(_end, turns)) and session.transport.is_open and session.transport.is_drained


def _end(turn: Turn) -> bool:
    request = turn.request
    code = _code(request)
    if code is None or request.body is None:
        return False
    if request.api.key is ApiKey.PRODUCE and not request.body.acks:
        turn.discard()
    else:
        turn.answer(error_response(request.api, request.version, request.body, code))
    return True


def _code(request: Request) -> ErrorCode | None:
    key, served_by = request.api.key, request.api.served_by
    if key is ApiKey.FETCH and request.version >= FIRST_FETCH_WITH_SESSIONS:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
        return ErrorCode.SHARE_SESSION_NOT_FOUND
    if served_by is ServedBy.LEADER:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NOT_COORDINATOR if served_by in (ServedBy.GROUP, ServedBy.TRANSACTION) else None
