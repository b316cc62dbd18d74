"""What the conformance suite wants of a Kafka client: the same few calls, blocking, in plain values.

A driver is one client library as its users get it: its defaults stay but for what a scenario says, and for waits that would
only take time on a broker of the same machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import attrs

DEADLINE_S: Final = 60.0
"""How long anything may take before it counts as never."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
EARLIEST: Final = 0
OAUTHBEARER: Final = "OAUTHBEARER"
RANGE: Final = "range"
COOPERATIVE: Final = "cooperative"
SERVER: Final = "server"
"""Assignors besides `range`: the cooperative one that the client has, and those of the server (`group.protocol=consumer`)."""

Headers = tuple[tuple[str, bytes | None], ...]


@attrs.frozen(kw_only=True)
class Access:
    """How a client gets in. Files are PEM; `certificate` has the client's key too."""

    ca: str | None = None
    certificate: str | None = None
    mechanism: str | None = None
    user: str = ""
    password: str = ""
    token: str = ""
    """For OAUTHBEARER. Java makes its own, of `user`."""

    @property
    def protocol(self) -> str:
        """Kafka's `security.protocol`. No broker of the suite has both: it is the same code one after the other."""
        return "SSL" if self.ca else "SASL_PLAINTEXT" if self.mechanism else "PLAINTEXT"


@attrs.frozen(kw_only=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    """None lets the client take its clock."""
    partition: int = 0


@attrs.frozen(kw_only=True)
class Received:
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@attrs.frozen(kw_only=True)
class Producing:
    acks: str = "all"
    """0, 1 or all."""
    codec: str = "none"
    idempotent: bool = False
    max_bytes: int | None = None
    """The largest message; None for the client's own limit."""
    transactional_id: str = ""


class Producer(Protocol):
    """One producer that stays open. Leaving its block closes it."""

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        """Send in order and wait until all are delivered; answers their offsets, -1 where the broker tells none (acks 0).
        Raises what the client says."""

    def begin(self) -> None:
        """A transaction."""

    def end(self, *, commit: bool) -> None:
        """Commit or abort it."""


class Member(Protocol):
    """A consumer of a group, which polls by itself and does not commit by itself."""

    def assigned(self, count: int) -> tuple[set[int], int]:
        """Waits until it holds so many partitions; answers them and how many were taken from it so far."""

    def received(self, count: int) -> list[Received]:
        """Waits until it has at least so many records; answers all."""

    def commit(self) -> None:
        """What it has received."""

    def leave(self) -> None: ...


class Driver(Protocol):
    def producer(self, **wanted: Any) -> AbstractContextManager[Producer]:
        """`wanted`: fields of `Producing`."""

    def read(self, topic: str, count: int, *, starts: dict[int, int], committed: bool = False) -> list[Received]:
        """`count` records of partitions that are assigned, each from an offset on; fewer only when the deadline is over."""

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset at or behind a time; None when there is none."""

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset, and the one behind the last."""

    def partitions(self, topic: str) -> set[int]:
        """The partitions of a topic, as metadata says; none where there is no such topic."""

    def member(self, group: str, topic: str, *, instance: str = "", assignor: str = RANGE) -> Member: ...

    def transform(self, group: str, source: str, target: str, count: int, *, transactional_id: str, commit: bool) -> None:
        """Consume, transform, produce: records of partition 0 from its start, and the group's offset, in one transaction."""

    def committed(self, group: str, topic: str) -> dict[int, int]: ...

    def reset(self, group: str, topic: str, offsets: dict[int, int]) -> None: ...

    def group(self, group: str) -> tuple[str, int]:
        """Its state and how many members it has."""

    def delete_group(self, group: str) -> None: ...

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def add_partitions(self, topic: str, total: int) -> None: ...

    def describe_configs(self, topic: str) -> dict[str, str | None]: ...

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None: ...

    def delete_records(self, topic: str, before: dict[int, int]) -> None: ...

    def close(self) -> None:
        """Members that a failed scenario has left leave."""


class Given(NamedTuple):
    """What a member of a share group was given."""

    partition: int
    offset: int
    value: bytes | None
    deliveries: int
    """How often it was given to somebody by now."""


Said = tuple[int, int, str]
"""(partition, offset, `accept`, `release`, `reject` or `renew`)"""


class Sharer(Protocol):
    """A consumer of a share group, which polls when it is told to."""

    def poll(self) -> list[Given]:
        """What the next poll gives that gives something."""

    def acknowledge(self, said: Sequence[Said] = ()) -> list[str]:
        """Say what became of records, or that all of the last poll are done, and wait until the broker has it. Answers what it
        refuses."""

    def leave(self) -> None: ...


@runtime_checkable
class SharingDriver(Protocol):
    def sharer(self, group: str, topic: str, *, explicit: bool = True) -> Sharer: ...

    def configure_group(self, group: str, configs: Mapping[str, str]) -> None: ...
