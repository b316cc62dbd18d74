"""The native call `list_connections`: who is connected to the listeners of both protocols.

Byte counts of a TCP connection, from the kernel (Linux: tcp(7), TCP_INFO, struct tcp_info). The kernel counts in any case,
so the server need not.
"""

from __future__ import annotations

import socket
import struct
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

import trio

from .....protocol.native import messages
from ....broker import Broker
from ....loop.procedures import in_turns
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


TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
"""None where there is no such thing."""
_INFO_BYTES: Final = 256
_COUNTS: Final = struct.Struct("=QQ")
_COUNTS_POSITION: Final = 120
"""Of tcpi_bytes_acked, behind which tcpi_bytes_received comes; from Linux 4.1 on."""
NOT_KNOWN: Final = -1


class TcpBytes(NamedTuple):
    """Bytes over the wire since the connection began, -1 where that is not known. Of TLS they are the encrypted ones."""

    received: int = NOT_KNOWN
    sent: int = NOT_KNOWN
    """Those that the peer's system has confirmed."""


class HasOptions(Protocol):
    """A socket."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def tcp_bytes(connection: HasOptions) -> TcpBytes:
    """Return the bytes received and sent over a connection. Takes 2 us."""
    if TCP_INFO is None:
        return TcpBytes()
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, TCP_INFO, _INFO_BYTES)
    except OSError:  # it has ended, or is no TCP connection
        return TcpBytes()
    if len(info) < _COUNTS_POSITION + _COUNTS.size:
        return TcpBytes()
    acknowledged, received = _COUNTS.unpack_from(info, _COUNTS_POSITION)
    return TcpBytes(received, acknowledged)
