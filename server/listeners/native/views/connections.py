"""The native call `list_connections`: who is connected to the listeners of both protocols."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

import trio

from .....protocol.native import messages
from ....broker import Broker
from ....loop.procedures import in_turns
from ....system.tcp_info import TcpBytes, tcp_bytes
from ...connections.session import NOT_SAID, Session
from ...connections.sockets import Admission, Listener

CONNECTIONS_PER_TURN: Final = 64
"""One takes 10 us."""


async def list_connections(
    broker: Broker, admission: Admission, message: messages.ListConnectionsRequest
) -> messages.ListConnectionsResponse:
    """The oldest of each listener first. Those that have just ended may be among them."""
    count = sum(listener.connections for listener in admission.listeners)
    served = ((listener, *each) for listener in admission.listeners for each in listener.sessions())
    wanted = list(islice(served, message.max_connections))
    told = tuple([_told(broker, *each) async for each in in_turns(wanted, CONNECTIONS_PER_TURN)])
    return messages.ListConnectionsResponse(told, count - len(told))


def _told(broker: Broker, listener: Listener, session: Session[Any], since: float) -> messages.ListedConnection:
    transport = session.transport
    name, _, version = _said(session.software).partition(" ")
    stream = transport.stream
    over_wire = tcp_bytes(stream.socket) if isinstance(stream, trio.SocketStream) else TcpBytes()
    return messages.ListedConnection(
        protocol=listener.protocol,
        listener=listener.listens_on,
        peer=transport.peer,
        client_id=_said(session.client_id),
        software_name=name,
        software_version=version,
        user=session.principal,
        since_timestamp=max(-1, broker.now_ms() - round((trio.current_time() - since) * 1000)),
        requests=session.taken_count,
        requests_in_flight=session.requests_in_flight,
        received_bytes=over_wire.received,
        sent_bytes=over_wire.sent,
        is_encrypted=transport.encrypts,
        is_throttled=session.muted_until > 0,
    )


def _said(text: str) -> str:
    return "" if text == NOT_SAID else text
