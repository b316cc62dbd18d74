"""What the kernel counts of a connection."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from triolog.server.listeners.native.views import connections
from triolog.server.listeners.native.views.connections import TcpBytes, tcp_bytes


def test_bytes_of_both_directions_are_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        server, _ = listener.accept()
        with server:
            client.sendall(b"x" * 1000)
            received = 0
            while received < 1000:
                received += len(server.recv(1000))
            assert tcp_bytes(server).received == 1000
            server.sendall(b"y" * 77)
            assert len(client.recv(77, socket.MSG_WAITALL)) == 77
            client.sendall(b"z")  # carries the confirmation, if nothing else has
            assert server.recv(1) == b"z"
            assert tcp_bytes(server) == TcpBytes(1001, 77)


def test_nothing_is_known_of_what_is_no_tcp_connection() -> None:
    first, second = socket.socketpair()
    with first, second:
        assert tcp_bytes(first) == TcpBytes(-1, -1)
    assert tcp_bytes(first) == TcpBytes(-1, -1), "it is closed"


def test_nothing_is_known_where_the_system_says_less(monkeypatch: pytest.MonkeyPatch) -> None:
    class OldKernel:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            return b"\0" * 104

    assert tcp_bytes(OldKernel()) == TcpBytes()
    monkeypatch.setattr(connections, "TCP_INFO", None)
    unasked: Any = object()
    assert tcp_bytes(unasked) == TcpBytes()
