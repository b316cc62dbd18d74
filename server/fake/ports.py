"""Ports that stay ours while nobody listens on them: a broker that is down refuses connections, and comes back on its port.

A socket that is bound and does not listen keeps the port from others, and, as both allow it (SO_REUSEADDR), does not keep our
own listener from it. During a reset the sockets that listen stay open: who connects meanwhile waits for the next life, where a
refused connection would cost a client its backoff.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator

import attrs
import trio

from ..config.broker_config import Address


@attrs.define(eq=False, repr=False)
class Ports:
    """Owner of the bound sockets. `close` gives all of them back."""

    _sockets: list[socket.socket] = attrs.field(factory=list)
    _listening: dict[Address, list[trio.SocketListener]] = attrs.field(factory=dict)
    _held: dict[Address, list[socket.socket]] = attrs.field(factory=dict)

    def keep(self, address: Address | None) -> Address | None:
        """Take a port, one of the system's choice for 0, and answer the address with it. What is no plain address of one
        interface is answered as it is."""
        if address is None or (family := _family(address.host)) is None:
            return address
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((address.host, address.port))
        except OSError:
            bound.close()  # whoever listens there will say so
            return address
        self._sockets.append(bound)
        return Address(address.host, bound.getsockname()[1])

    async def listen(self, address: Address) -> list[trio.SocketListener]:
        """Sockets that listen on an address: those that are held, or new ones. Raises OSError."""
        from ..listeners.connections.sockets import open_sockets  # a broker in a program may do without

        if (held := self._held.pop(address, None)) is not None:
            listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in held]
        else:
            listeners = await open_sockets(address)
        self._listening[address] = listeners
        return listeners

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the sockets that listen now open for the time of the block, for `listen`."""
        for address, listeners in self._listening.items():
            with contextlib.suppress(OSError):  # it is closed: a node that is down
                self._held[address] = [
                    socket.fromfd(each.socket.fileno(), each.socket.family, each.socket.type) for each in listeners
                ]
        try:
            yield
        finally:
            for each in [each for held in self._held.values() for each in held]:
                each.close()
            self._held.clear()

    def close(self) -> None:
        while self._sockets:
            self._sockets.pop().close()


def _family(host: str) -> socket.AddressFamily | None:
    with contextlib.suppress(ValueError):
        return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    return None
