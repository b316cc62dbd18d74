"""Connections that were greeted and ask for nothing more."""

from __future__ import annotations

import resource
import socket
import struct
import sys

from ..measuring.child import say_started
from ..measuring.wire import Address, Wire

API_VERSIONS = struct.pack(">hhih5s", 18, 0, 1, 5, b"bench")
"""Kafka's ApiVersions in version 0: key, version, correlation id, client id."""


def hold_idle(*, address: Address, connections: int, kafka: bool) -> int:
    """Open the connections and keep them until standard input ends; answers how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, connections + 100)), hard))
    held = [_greeted_kafka(address) if kafka else Wire(address).socket for _ in range(connections)]
    say_started()
    sys.stdin.read()
    for each in held:
        each.close()
    return len(held)


def _greeted_kafka(address: Address) -> socket.socket:
    stream = socket.create_connection((address[0], address[1]), timeout=60)
    stream.sendall(struct.pack(">i", len(API_VERSIONS)) + API_VERSIONS)
    answer = stream.recv(65536)
    while len(answer) < 4 + int.from_bytes(answer[:4], "big"):
        answer += stream.recv(65536)
    return stream
