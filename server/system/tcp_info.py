"""Byte counts of a TCP connection, from the kernel (Linux: tcp(7), TCP_INFO, struct tcp_info). The kernel counts in any case,
so the server need not."""

from __future__ import annotations

import socket
import struct
from typing import Final, NamedTuple, Protocol

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
