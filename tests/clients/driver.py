"""What the conformance suite wants of a Kafka client: the same few calls, blocking, in plain values.

A driver is one client library as its users get it: its defaults stay but for what a scenario says, and for waits that would
only take time on a broker in the same process.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import attrs

DEADLINE_S: Final = 60.0
"""How long anything may take before it counts as never."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
EARLIEST: Final = 0

Headers = tuple[tuple[str, bytes | None], ...]


@attrs.frozen(kw_only=True)
class Message:
    """What is sent."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    """None lets the client take its clock."""
    partition: int = 0


@attrs.frozen(kw_only=True)
class Received:
    """What is read."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Producer(Protocol):
    """One producer that stays open. Leaving its block closes it."""

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        """Send in order and wait until all are delivered; answers their offsets, -1 where the broker tells none (acks 0).
        Raises what the client says."""


class Driver(Protocol):
    """One client library, at one cluster."""

    name: str

    def __init__(self, bootstrap: str) -> None: ...

    def producer(
        self,
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
        max_bytes: int | None = None,
    ) -> AbstractContextManager[Producer]:
        """`acks`: 0, 1 or all. `max_bytes`: the largest message, None for the client's own limit."""

    def read(self, topic: str, count: int, *, starts: dict[int, int]) -> list[Received]:
        """`count` records of partitions that are assigned, each from an offset on; fewer only when the deadline is over."""

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset at or behind a time; None when there is none."""

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset, and the one behind the last."""

    def partitions(self, topic: str) -> set[int]:
        """The partitions of a topic, as metadata says."""
