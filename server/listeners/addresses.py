"""Where a server listens. Who only wants to know that need not load what listens."""

from __future__ import annotations

import json

import attrs

from ..config.address import Address


@attrs.frozen
class Addresses:
    """Where a running server listens; None where it does not."""

    native: Address | None = None
    kafka: Address | None = None
    metrics: Address | None = None
    """HTTP; its listener is not among `Listeners`, because it is there before the broker."""
    control: Address | None = None
    """HTTP, for tests; its listener outlives the broker."""
    console: Address | None = None
    """HTTP, for browsers; a process beside the server answers there."""

    def as_json(self) -> str:
        return json.dumps({name: str(address) for name, address in attrs.asdict(self, recurse=False).items() if address})

    def __str__(self) -> str:
        return " ".join(f"{name}={address}" for name, address in attrs.asdict(self, recurse=False).items() if address)
