"""What a server is told before it starts. The keys that people set are in `broker_keys`, where they come from in
`broker_settings`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

import attrs

from ..protocol.kafka.scram import ScramMechanism
from ..protocol.limits import (
    MAX_FRAME_BYTES,
    MAX_HEADERS_PER_RECORD,
    MAX_IN_FLIGHT,
    MAX_IN_FLIGHT_BYTES,
    MAX_PRODUCERS_PER_PARTITION,
    MAX_RECORDS_PER_BATCH,
    MIB,
)
from .config import DataPermissions, LogConfig
from .open_files import default_max_connections


class Address(NamedTuple):
    """Where to listen or connect; port 0 lets the system choose."""

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


class ListenerSecurity(enum.Enum):
    """How clients of a listener are known, and whether others can read along (Kafka: security.protocol)."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"

    @property
    def has_tls(self) -> bool:
        return self in (ListenerSecurity.SSL, ListenerSecurity.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (ListenerSecurity.SASL_PLAINTEXT, ListenerSecurity.SASL_SSL)


class ClientAuth(enum.Enum):
    """Whether clients show a certificate (Kafka: ssl.client.auth)."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


PLAIN: Final = "PLAIN"
SASL_MECHANISMS: Final = (PLAIN, *(mechanism.sasl_name for mechanism in ScramMechanism))
"""What there is."""


@attrs.frozen(kw_only=True)
class BrokerConfig:
    """Everything a server needs to know before it starts."""

    data_dirs: tuple[str, ...]
    data_permissions: DataPermissions = DataPermissions.OWNER
    native: Address | None = None
    kafka: Address | None = None
    kafka_advertised: Address | None = None
    metrics: Address | None = None
    node_id: int | None = None
    cluster_id: str | None = None
    topic_defaults: LogConfig = attrs.field(factory=LogConfig)
    adopted_topics: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Topic configuration for partition directories that have no entry in topics.json."""
    max_connections: int = attrs.field(factory=default_max_connections)
    """By default as many as the limit of open files lets be, at most 1,000."""
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_in_flight: int = MAX_IN_FLIGHT
    max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES
    max_broker_in_flight_bytes: int = 256 * MIB
    max_records_per_batch: int = MAX_RECORDS_PER_BATCH
    max_headers_per_record: int = MAX_HEADERS_PER_RECORD
    checkpoint_interval_ms: int = 60_000
    retention_check_interval_ms: int = 300_000
    producer_id_expiration_ms: int = 86_400_000
    max_producers_per_partition: int = MAX_PRODUCERS_PER_PARTITION
    disk_reserve_bytes: int = 0
    cleaner_enable: bool = True
    cleaner_dedupe_buffer_bytes: int = 128 * MIB
    cleaner_io_max_bytes_per_second: int = 0
    cleaner_backoff_ms: int = 15_000
    scrub_bytes_per_second: int = 0
    scrub_interval_ms: int = 7 * 86_400_000
    offsets_topic_num_partitions: int = 1
    offsets_retention_ms: int = 7 * 86_400_000
    offset_metadata_max_bytes: int = 4096
    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_session_timeout_ms: int = 45_000
    group_max_size: int = 10_000
    max_groups: int = 10_000
    transaction_state_log_num_partitions: int = 1
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 86_400_000
    stage_retention_ms: int = 86_400_000
    max_staged_bytes: int = 2**34
    stage_commit_expiration_ms: int = 30 * 86_400_000
    max_lease_ms: int = 3_600_000
    auto_create_topics_enable: bool = True
    num_partitions: int = 1
    lenient: bool = False
    """Whether Kafka clients get what tests want instead of what Kafka refuses; see docs/kafka-compatibility.md."""
    native_security: ListenerSecurity = ListenerSecurity.PLAINTEXT
    kafka_security: ListenerSecurity = ListenerSecurity.PLAINTEXT
    ssl_certificate_file: str | None = None
    ssl_key_file: str | None = None
    ssl_client_ca_file: str | None = None
    native_ssl_client_auth: ClientAuth = ClientAuth.NONE
    kafka_ssl_client_auth: ClientAuth = ClientAuth.NONE
    ssl_handshake_timeout_ms: int = 10_000
    sasl_enabled_mechanisms: tuple[str, ...] = SASL_MECHANISMS
    sasl_users_file: str | None = None
    sasl_users: Mapping[str, str] = attrs.field(factory=dict, repr=lambda users: repr(list(users)))
    """Passwords by user: for embedders, who have no file."""
    connections_max_reauth_ms: int = 0
    connection_failed_authentication_delay_ms: int = 100
    acl_enable: bool = False
    super_users: tuple[str, ...] = ()
    allow_everyone_if_no_acl_found: bool = False
    stop_grace_ms: int = 5_000
    stop_timeout_ms: int = 30_000
    durable: bool = True
    """False for a directory that goes with the process: its small files are not synced."""
