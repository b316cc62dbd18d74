"""Ports that stay ours while nobody listens on them: a broker that is down refuses connections, and comes back on its port.

A socket that is bound and does not listen keeps the port from others, and, as both allow it (SO_REUSEADDR), does not keep our
own listener from it. During a reset the sockets that listen stay open, and connections that were handed over: clients wait for
the next life, where a refused or broken connection would cost them their backoff.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from ..config.broker_config import Address

if TYPE_CHECKING:
    from ..listeners.connections.sockets import Accepts


@attrs.define(eq=False, repr=False)
class ResumedListener(trio.abc.Listener[trio.SocketStream]):
    """A listening socket whose first connections are those that were handed over."""

    listener: trio.SocketListener
    _handed_over: list[socket.socket]

    @property
    def socket(self) -> trio.socket.SocketType:
        return self.listener.socket

    async def accept(self) -> trio.SocketStream:
        if self._handed_over:
            await trio.lowlevel.checkpoint()
            return trio.SocketStream(trio.socket.from_stdlib_socket(self._handed_over.pop()))
        return await self.listener.accept()

    async def aclose(self) -> None:
        while self._handed_over:
            self._handed_over.pop().close()
        await self.listener.aclose()


@attrs.define(eq=False, repr=False)
class Ports:
    """Owner of the bound sockets. `close` gives all of them back."""

    _sockets: list[socket.socket] = attrs.field(factory=list)
    _listening: dict[Address, list[trio.SocketListener]] = attrs.field(factory=dict)
    _held: dict[Address, list[socket.socket]] = attrs.field(factory=dict)
    _handed_over: dict[Address, list[socket.socket]] = attrs.field(factory=dict)
    """Accepted connections, by the address that they were accepted on."""

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

    async def listen(self, address: Address) -> Sequence[Accepts]:
        """Sockets that listen on an address: those that are held, or new ones. Raises OSError."""
        from ..listeners.connections.sockets import open_sockets  # a broker in a program may do without

        if (held := self._held.pop(address, None)) is not None:
            listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in held]
        else:
            listeners = await open_sockets(address)
        self._listening[address] = listeners
        if handed_over := self._handed_over.pop(address, None):
            return [ResumedListener(listeners[0], handed_over), *listeners[1:]]
        return listeners

    @contextlib.contextmanager
    def held(self, handed_over: Mapping[Address, list[socket.socket]] | None = None) -> Iterator[None]:
        """Keep the sockets that listen now, and connections that were handed over, open for the time of the block, for
        `listen`."""
        self._handed_over |= handed_over or {}
        for address, listeners in self._listening.items():
            with contextlib.suppress(OSError):  # it is closed: a node that is down
                self._held[address] = [
                    socket.fromfd(each.socket.fileno(), each.socket.family, each.socket.type) for each in listeners
                ]
        try:
            yield
        finally:
            for kept in (self._held, self._handed_over):
                for each in [each for held in kept.values() for each in held]:
                    each.close()
                kept.clear()

    def close(self) -> None:
        while self._sockets:
            self._sockets.pop().close()


def _family(host: str) -> socket.AddressFamily | None:
    with contextlib.suppress(ValueError):
        return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    return None
