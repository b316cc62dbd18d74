"""Ports that stay ours while nobody listens on them: a broker that is down refuses connections, and comes back on its port.

A socket that is bound and does not listen keeps the port from others, and, as both allow it (SO_REUSEADDR), does not keep our
own listener from it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket

import attrs

from ..settings.broker_config import Address


@attrs.define(eq=False, repr=False)
class Ports:
    """Owner of the bound sockets. `close` gives all of them back."""

    _sockets: list[socket.socket] = attrs.field(factory=list)

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

    def close(self) -> None:
        while self._sockets:
            self._sockets.pop().close()


def _family(host: str) -> socket.AddressFamily | None:
    with contextlib.suppress(ValueError):
        return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    return None
