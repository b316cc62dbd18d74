"""The addresses of a server. Code that needs only these does not have to load the listeners."""

from __future__ import annotations

import json

import attrs

from ..config.values import Address


@attrs.frozen
class Addresses:
    """The addresses of a running server's listeners; None for a listener that does not exist."""

    native: Address | None = None
    kafka: Address | None = None
    metrics: Address | None = None
    """HTTP; its listener is not among `Listeners`, because it is there before the broker."""
    http: Address | None = None
    """HTTP, for records."""
    schema_registry: Address | None = None
    """HTTP; its listener is not among `Listeners`, because it is a client of the broker."""
    control: Address | None = None
    """HTTP, for tests; its listener outlives the broker."""
    console: Address | None = None
    """HTTP, for browsers; a process beside the server answers there."""

    def as_json(self) -> str:
        return json.dumps({name: str(address) for name, address in attrs.asdict(self, recurse=False).items() if address})

    def __str__(self) -> str:
        return " ".join(f"{name}={address}" for name, address in attrs.asdict(self, recurse=False).items() if address)
