"""The listeners of several nodes: each can be taken down and put up on its port. For tests only."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from ....protocol.kafka.apis import APIS, Api
from ...broker import Broker
from ...config.broker_config import Address
from ...listeners.connections.sockets import Admission, Listener, OpenSockets, open_sockets
from ...listeners.connections.tls import TlsServer
from ...listeners.kafka.calls import listener_of
from ...listeners.kafka.door import Node
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
