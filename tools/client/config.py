"""Settings of clients, producers and consumers, with Kafka's names where Kafka has one. Durations are in ms."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import attrs
from attrs.validators import ge, in_, instance_of, optional

from ...protocol import limits
from ...protocol.native.messages import ACKS_ALL, ACKS_LEADER, ACKS_NONE, DEFAULT_TRANSACTION_TIMEOUT_MS
from ...protocol.records.compression import check_compression_level
from ...protocol.types import CompressionType, Isolation
from .login import LoginConfig
from .tls import TlsConfig

HOST_AND_PORT: Final = re.compile(r"(?:\[(?P<bracketed>[^]]+)\]|(?P<host>[^:\s]+))(?::(?P<port>\d{1,5}))?")
CLIENT_SOFTWARE: Final = "triolog-python"

Address = tuple[str, int]
AddressSource = Address | Callable[[], Address]
"""Where the server is; a callable is asked before every attempt, so a server may come back elsewhere."""


Server = str | AddressSource
"""Where the server is, as a program gives it: also "host", "host:port" or "[IPv6]:port"."""
DEFAULT_PORT: Final = 9095


def address_of(server: Server, port: int = DEFAULT_PORT) -> AddressSource:
    """Return the address of a server; `port` where there is none. Raises ValueError."""
    if not isinstance(server, str):
        return server
    if server.count(":") > 1 and not server.startswith("["):  # an IPv6 address without brackets has no port
        return server, port
    found = HOST_AND_PORT.fullmatch(server)
    if found is None or not 0 < int(found["port"] or port) < 65536:
        raise ValueError(f"invalid server {server!r}: use host, host:port or [IPv6 address]:port")
    return found["bracketed"] or found["host"], int(found["port"] or port)


def address_text(address: Address) -> str:
    """As messages name a server."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _duration(default: int) -> Any:
    return attrs.field(default=default, validator=[instance_of(int), ge(0)])


def _size(default: int) -> Any:
    return attrs.field(default=default, validator=[instance_of(int), ge(1)])


@attrs.frozen(kw_only=True)
class ClientConfig:
    """Settings of a client's connection to a server.

    `request_timeout_ms` is how long an answer may take beyond what the request itself may wait; past it the connection
    counts as dead. Between attempts to connect the pause doubles from `reconnect_backoff_ms` to `reconnect_backoff_max_ms`.
    """

    client_id: str = "triolog"
    connect_timeout_ms: int = _duration(10_000)
    request_timeout_ms: int = _duration(30_000)
    reconnect_backoff_ms: int = _duration(50)
    reconnect_backoff_max_ms: int = _duration(1_000)
    max_frame_bytes: int = _size(limits.MAX_FRAME_BYTES)
    tls: TlsConfig | None = None
    """None: the connection is not encrypted."""
    login: LoginConfig | None = None
    """None: the client logs in as nobody; a server where users log in is then refused."""


@attrs.frozen(kw_only=True)
class ProducerConfig:
    """Settings of a producer: batching, requests, idempotence and transactions.

    A batch is sent when it holds `batch_bytes`, when its first record is `linger_ms` old, or on flush. A request carries all
    full batches of a partition up to `max_request_bytes`, or to what the server takes as one frame where that is less, and each
    partition has one request in flight at a time: a retry then cannot overtake anything, so order survives every failure, and
    throughput comes from larger requests instead.
    A 1 KB record costs the client 14.6 us of CPU in batches of 16 KiB, 8.5 us in 128 KiB and 8.2 us in 512 KiB (two cores,
    CPython 3.11, server in another process on loopback, 2026-11-21); `linger_ms` 5 is Kafka's default.

    With `enable_idempotence` the server recognises a batch that comes again, so a retry writes nothing twice. It needs acks
    -1; None, the default, is on with that and off with other acks. `transactional_id` needs it: that producer's
    records belong to transactions, which the server aborts when they are open for `transaction_timeout_ms`.
    """

    acks: int = attrs.field(default=ACKS_ALL, validator=in_((ACKS_NONE, ACKS_LEADER, ACKS_ALL)))
    enable_idempotence: bool | None = attrs.field(default=None, validator=optional(instance_of(bool)))
    transactional_id: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    transaction_timeout_ms: int = _duration(DEFAULT_TRANSACTION_TIMEOUT_MS)
    linger_ms: int = _duration(5)
    batch_bytes: int = _size(128 * limits.KIB)
    max_request_bytes: int = _size(limits.MIB)
    buffer_bytes: int = _size(32 * limits.MIB)
    max_block_ms: int = _duration(60_000)
    request_timeout_ms: int = _duration(30_000)
    delivery_timeout_ms: int = _duration(120_000)
    retry_backoff_ms: int = _duration(100)
    retry_backoff_max_ms: int = _duration(1_000)
    compression_type: CompressionType = attrs.field(default=CompressionType.NONE, converter=CompressionType)
    compression_level: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.enable_idempotence and self.acks != ACKS_ALL:
            raise ValueError(f"acks is {self.acks}. An idempotent producer needs acks -1, or enable_idempotence=False")
        if self.transactional_id is not None and not self.is_idempotent:
            raise ValueError("a transactional producer is idempotent. It needs acks -1 and no enable_idempotence=False")
        check_compression_level(self.compression_type, self.compression_level)

    @property
    def is_idempotent(self) -> bool:
        """Return whether batches carry a producer id and sequences."""
        return self.acks == ACKS_ALL if self.enable_idempotence is None else self.enable_idempotence


@attrs.frozen(kw_only=True)
class ConsumerConfig:
    """Settings of a consumer's reads.

    Without `follow` reading ends where the log is found to end at the start. `offset_reset` says where to go on when the
    offset is out of range (retention may have passed it): "earliest", "latest", or None to raise. `prefetch_bytes` is
    how much is read ahead; `retry_timeout_ms` how long what may pass is retried before it is raised: a lost connection, or an
    error of a partition.

    Under `isolation` read_committed reading stays behind the last stable offset, where the oldest open transaction begins, and
    leaves out the records of aborted ones. With `skip_gaps` reading passes over offsets that were taken out because their
    bytes were damaged; with False they are an error; with None the topic's gap.policy decides, and what somebody has accepted
    is passed over. `group` is whose offsets `commit` and `committed` mean.
    """

    follow: bool = True
    max_wait_ms: int = _duration(500)
    min_bytes: int = _size(1)
    max_bytes: int = _size(16 * limits.MIB)
    partition_max_bytes: int = _size(limits.MIB)
    prefetch_bytes: int = _size(16 * limits.MIB)
    check_crcs: bool = True
    isolation: Isolation = attrs.field(default=Isolation.READ_UNCOMMITTED, converter=Isolation)
    skip_gaps: bool | None = None
    group: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    offset_reset: str | None = attrs.field(default=None, validator=optional(in_(("earliest", "latest"))))
    retry_backoff_ms: int = _duration(100)
    retry_backoff_max_ms: int = _duration(1_000)
    retry_timeout_ms: int = _duration(120_000)
