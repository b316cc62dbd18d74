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
    """Settings of a client's connection to a server. All durations are in ms."""

    client_id: str = "triolog"
    """Name of the client, for quotas and the server's log lines."""
    connect_timeout_ms: int = _duration(10_000)
    """Time for an attempt to connect, with TLS and login."""
    request_timeout_ms: int = _duration(30_000)
    """Time for a response, beyond the time that the request itself may wait; after it the connection counts as lost."""
    reconnect_backoff_ms: int = _duration(50)
    """First pause between attempts to connect. It doubles with each."""
    reconnect_backoff_max_ms: int = _duration(1_000)
    """Longest pause between attempts to connect."""
    max_frame_bytes: int = _size(limits.MAX_FRAME_BYTES)
    """Size of the largest response that the client accepts."""
    tls: TlsConfig | None = None
    """TLS settings. None: the connection is not encrypted."""
    login: LoginConfig | None = None
    """Credentials. None: the client does not log in, and refuses a server where users do."""


@attrs.frozen(kw_only=True)
class ProducerConfig:
    """Settings of a producer: batching, requests, idempotence and transactions. All durations are in ms.

    A request carries all full batches of a partition. Each partition has one request in flight at a time: a retry then cannot
    overtake anything, so order survives every failure, and throughput comes from larger requests instead.
    A 1 KB record costs the client 14.6 us of CPU in batches of 16 KiB, 8.5 us in 128 KiB and 8.2 us in 512 KiB (two cores,
    CPython 3.11, server in another process on loopback, 2026-11-21).
    """

    acks: int = attrs.field(default=ACKS_ALL, validator=in_((ACKS_NONE, ACKS_LEADER, ACKS_ALL)))
    """-1: the response comes when the batch is as durable as the topic requires. 1: when it is in the page cache. 0: none."""
    enable_idempotence: bool | None = attrs.field(default=None, validator=optional(instance_of(bool)))
    """The server recognises a batch that comes again, so a retry writes nothing twice. It needs `acks` -1. None: on with that,
    and off with other acks."""
    transactional_id: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    """Id of the transactions that records belong to. It needs idempotence. None: no transactions."""
    transaction_timeout_ms: int = _duration(DEFAULT_TRANSACTION_TIMEOUT_MS)
    """Time after which the server aborts an open transaction."""
    linger_ms: int = _duration(5)
    """Time that the first record of a batch waits for others, as in Kafka. A flush ends it."""
    batch_bytes: int = _size(128 * limits.KIB)
    """Size of a batch that is sent without waiting for more records."""
    max_request_bytes: int = _size(limits.MIB)
    """Size of a request at most, or the size that the server accepts if that is less."""
    buffer_bytes: int = _size(32 * limits.MIB)
    """Size of all records that are not settled. `send` waits while it is reached."""
    max_block_ms: int = _duration(60_000)
    """Time that `send` waits for space in the buffer, or for the partitions of a topic."""
    request_timeout_ms: int = _duration(30_000)
    """Time that the server may wait before it answers a request."""
    delivery_timeout_ms: int = _duration(120_000)
    """Time after which a record that is not acknowledged fails."""
    retry_backoff_ms: int = _duration(100)
    """First pause before a retry. It doubles with each."""
    retry_backoff_max_ms: int = _duration(1_000)
    """Longest pause before a retry."""
    compression_type: CompressionType = attrs.field(default=CompressionType.NONE, converter=CompressionType)
    """Compression of batches."""
    compression_level: int | None = None
    """Level of the compression. None: the default of the type."""

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
    """Settings of a consumer's reads. All durations are in ms."""

    follow: bool = True
    """Wait for new records. False: end where the log ends at the start."""
    max_wait_ms: int = _duration(500)
    """Time that the server waits for `min_bytes`."""
    min_bytes: int = _size(1)
    """Size of records that the server waits for."""
    max_bytes: int = _size(16 * limits.MIB)
    """Size of the records of one response at most."""
    partition_max_bytes: int = _size(limits.MIB)
    """Size of the records of one partition in a response at most."""
    prefetch_bytes: int = _size(16 * limits.MIB)
    """Size of records that are read ahead."""
    check_crcs: bool = True
    """Check the CRC of every batch."""
    isolation: Isolation = attrs.field(default=Isolation.READ_UNCOMMITTED, converter=Isolation)
    """`read_committed`: stop before the first open transaction, and leave out the records of aborted ones."""
    skip_gaps: bool | None = None
    """Skip offsets that were lost to corruption. False: raise an error there. None: the topic's `gap.policy` decides, and
    accepted gaps are skipped."""
    group: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    """Group whose offsets `commit` and `committed` use."""
    offset_reset: str | None = attrs.field(default=None, validator=optional(in_(("earliest", "latest"))))
    """`earliest` or `latest`: where to continue if the offset is out of range, for example after retention. None: raise."""
    retry_backoff_ms: int = _duration(100)
    """First pause before a retry. It doubles with each."""
    retry_backoff_max_ms: int = _duration(1_000)
    """Longest pause before a retry."""
    retry_timeout_ms: int = _duration(120_000)
    """Time to retry after a lost connection or a transient error of a partition, before the error is raised."""
