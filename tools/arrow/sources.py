"""The interface that a server, a directory and a broker in this process share as sources of records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from ...protocol.types import Isolation, TopicPartition
from ..client.config import Address
from .bounds import Bounds
from .report import ArrowError

if TYPE_CHECKING:
    import pyarrow as pa

    from ..client.login import LoginConfig
    from ..client.tls import TlsConfig

DAMAGED: Final = ("warn", "skip", "raise")


class HasNative(Protocol):
    """An embedded broker."""

    @property
    def native(self) -> Address | None:
        """The address on which the broker listens."""


Source = str | os.PathLike[str] | Address | HasNative
"""`HOST:PORT`, a directory, or an embedded broker."""


@attrs.frozen(kw_only=True)
class ReadOptions:
    """The options of a read from a source."""

    isolation: Isolation = Isolation.READ_COMMITTED
    damaged: str = "warn"
    skip_gaps: bool | None = None
    login: LoginConfig | None = None
    tls: TlsConfig | None = None
    timeout_ms: int = 60_000


@attrs.frozen
class Span:
    """Offsets [low, high) of one partition: what a read takes of it."""

    name: TopicPartition
    low: int
    high: int


class OpenSource(Protocol):
    """A source that is open for one read. Owner: the read, which closes it."""

    def topics(self) -> list[str]:
        """The names of all topics, ascending; without the server's own."""

    def spans(self, topics: Sequence[str], partitions: Sequence[int] | None, bounds: Bounds) -> list[Span]:
        """Return the current spans of the topics, in order. ArrowError for a topic or a partition that does not exist."""

    def read(self, span: Span, columns: tuple[str, ...], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """The records of a span and of the bounds' times, in order, with the columns as the decoder names them."""

    def log_bytes(self) -> int:
        """Return the number of log bytes examined so far, as stored."""

    def close(self) -> None:
        """Nothing more is read."""


def address_of(target: Source) -> Address:
    """Of a server. ArrowError for what is none."""
    if isinstance(target, (str, os.PathLike)):
        return _address(os.fspath(target))
    return target if isinstance(target, tuple) else _native(target)


def chosen_partitions(
    found: Sequence[TopicPartition], topics: Sequence[str], partitions: Sequence[int] | None, bounds: Bounds, where: str
) -> list[TopicPartition]:
    """Those of `found` that are asked for, ascending. ArrowError for what is named and not there."""
    there = set(found)
    for topic in topics:
        numbers = [name.partition for name in there if name.topic == topic]
        if not numbers:
            raise ArrowError(f"{where} has no topic {topic}")
        for number in partitions or ():
            if number not in numbers:
                raise ArrowError(f"{where} has no partition {topic}-{number}. Topic {topic} has {len(numbers)} partitions")
    for named in bounds.named():
        if named not in there and named not in {name.partition for name in there}:
            raise ArrowError(f"{where} has no partition {named}, but an offset is given for it")
    return sorted(name for name in there if name.topic in topics and (partitions is None or name.partition in partitions))


def _native(broker: HasNative) -> Address:
    if not hasattr(broker, "native"):
        raise ArrowError(f"{type(broker).__name__} is not a source. Use HOST:PORT, a directory or an embedded broker")
    if broker.native is None:
        raise ArrowError("the embedded broker does not listen for the native protocol. Open it with native='127.0.0.1:0'")
    return broker.native


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or "/" in host:
        raise ArrowError(f"{text} is neither a directory nor HOST:PORT")
    return host, int(port)
