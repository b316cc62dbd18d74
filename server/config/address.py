"""Addresses to listen on or connect to."""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple


class Address(NamedTuple):
    """An address to listen on or connect to; port 0 lets the system choose."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`HOST:PORT` or `[IPV6]:PORT`. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{text!r} is not HOST:PORT with a port of 0 to 65535")
        return cls(host=host, port=int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_NATIVE: Final = Address(host="127.0.0.1", port=9095)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host. Names count as reachable from elsewhere, except `localhost`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
