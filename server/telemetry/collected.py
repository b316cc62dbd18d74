"""Telemetry of clients: who is asked for what, what has come, and how pushes ended. Of each of their metrics the last number is
kept. Sums are added up, since clients send increments.

Everything has a limit, because names and attributes are the clients' own.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import attrs

from ..system.client_memory import Account, ClientMemory
from .instances import ClientInstances
from .otlp import Point

MAX_CLIENTS: Final = 500
MAX_SERIES_OF_CLIENT: Final = 500
SERIES_BYTES: Final = 300
MAX_SERIES: Final = 10_000
"""Of all clients together."""


class Series(NamedTuple):
    """A number, with its client, metric and attributes."""

    client: Mapping[str, str]
    metric: str
    attributes: str
    value: float


@attrs.define(eq=False, repr=False)
class _OfClient:
    client: Mapping[str, str]
    expires_ms: int
    values: dict[tuple[str, str], float] = attrs.field(factory=dict)


@attrs.define(eq=False, repr=False)
class Collected:
    """Owner: `Telemetry`. Times are ms that only grow."""

    left_out: int = 0
    """Numbers that there was no room for, since the start."""
    _account: Account = attrs.field(factory=lambda: ClientMemory().account("client metrics"), kw_only=True)
    """Where they are charged."""
    _clients: dict[bytes, _OfClient] = attrs.field(factory=dict)
    """Who has sent last is at the end."""
    _series: int = 0

    def add(
        self, instance_id: bytes, client: Mapping[str, str], points: Iterable[Point], *, now_ms: int, expires_ms: int
    ) -> None:
        """A client has sent these; they are kept until `expires_ms`, or until it sends more."""
        found = self._clients.pop(instance_id, None)
        self._make_room(now_ms)
        of_client = self._clients[instance_id] = found or _OfClient(client, expires_ms)
        of_client.expires_ms = expires_ms
        for point in points:
            key = point.metric, point.attributes
            before = of_client.values.get(key)
            if before is None:
                size = SERIES_BYTES + sys.getsizeof(point.metric) + sys.getsizeof(point.attributes)
                is_full = len(of_client.values) >= MAX_SERIES_OF_CLIENT or self._series >= MAX_SERIES
                if is_full or not self._account.fits(instance_id, size):
                    self.left_out += 1
                    continue
                self._account.put(instance_id, self._account.size_of(instance_id) + size)
                self._series += 1
            of_client.values[key] = point.value + (before or 0.0) if point.is_delta else point.value

    def _make_room(self, now_ms: int) -> None:
        """Forget who was silent for too long, and at the limit who was for longest."""
        for instance_id, each in list(self._clients.items()):
            if each.expires_ms <= now_ms or len(self._clients) >= MAX_CLIENTS:
                self._series -= len(each.values)
                del self._clients[instance_id]
                self._account.drop(instance_id)

    def series(self, now_ms: int) -> Iterator[Series]:
        """All numbers of clients that were not silent for too long."""
        for each in self._clients.values():
            if each.expires_ms > now_ms:
                for (metric, attributes), value in each.values.items():
                    yield Series(each.client, metric, attributes, value)


@attrs.define(eq=False, repr=False)
class Telemetry:
    """Owner: the broker."""

    instances: ClientInstances
    collected: Collected = attrs.field(factory=Collected)
    pushes: Counter[str] = attrs.field(factory=Counter)
    """By the name of the error; NONE is what was taken."""
