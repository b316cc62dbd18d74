"""The listening sockets of a server: one port, whatever the host resolves to."""

from __future__ import annotations

import errno
import socket
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from triolog.server.config.broker_config import Address
from triolog.server.listeners.connections.sockets import Admission
from triolog.server.listeners.native.calls import native_listener

from tests.support.brokers import running_broker

needs_more_loopback_addresses = pytest.mark.skipif(sys.platform != "linux", reason="has 127.0.0.1 only")


@attrs.frozen
class Resolver(trio.abc.HostnameResolver):
    """Every host has these addresses."""

    hosts: tuple[str, ...]

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (each, int(port))) for each in self.hosts]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


@needs_more_loopback_addresses
async def test_a_host_with_two_addresses_is_listened_on_at_the_port_that_is_told(tmp_path: Path) -> None:
    hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    trio.socket.set_custom_hostname_resolver(Resolver(hosts))
    async with running_broker(tmp_path) as broker, trio.open_nursery() as nursery:
        listener = native_listener(broker, Address(host="many.test", port=0), Admission.of(broker.config))
        address = await nursery.start(listener.run)
        assert address.host == hosts[0]
        for host in hosts:
            stream = await trio.open_tcp_stream(host, address.port)
            await stream.aclose()
        nursery.cancel_scope.cancel()


@needs_more_loopback_addresses
async def test_an_address_that_is_taken_is_named_and_no_other_one_stays_open(tmp_path: Path) -> None:
    """A socket that stayed open would be found as left behind; its port may be somebody else's by now."""
    trio.socket.set_custom_hostname_resolver(Resolver(("127.0.0.1", "127.0.0.2")))
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        async with running_broker(tmp_path) as broker:
            with pytest.raises(OSError, match=f"cannot listen on many.test:{port}") as refused:
                await native_listener(broker, Address(host="many.test", port=port), Admission.of(broker.config)).run()
        assert refused.value.errno == errno.EADDRINUSE
