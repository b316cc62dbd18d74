"""The configuration that a server needs before it starts. A field that can be set from outside declares its key: default, range
and meaning. `broker_settings` reads the values.

The division of `max_memory_bytes` into budgets.

| for | of it |
|---|---|
| a server without clients (60 MiB resident, measured), and the process that compacts | FIXED_BYTES |
| requests of all connections, and the one admitted over the limit | an eighth of the rest, twice |
| responses that clients have not read | an eighth |
| a batch that is unpacked to be checked | an eighth |
| uncounted memory of connections, CONNECTION_BYTES each | an eighth |
| keys of a compaction | an eighth |
| state kept on behalf of clients, including members of groups | an eighth |
| logs that wait for space | a sixteenth |
| open logs, producers, memory that Python does not release | the rest: a sixteenth |

A key that is set by hand keeps its value. Without `max_memory_bytes` every budget has its usual value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from ...protocol.errors import InvalidConfigError
from ...protocol.limits import (
    INT16_MAX,
    INT32_MAX,
    KIB,
    MAX_DECOMPRESSED_BYTES,
    MAX_FRAME_BYTES,
    MAX_HEADERS_PER_RECORD,
    MAX_IN_FLIGHT,
    MAX_IN_FLIGHT_BYTES,
    MAX_PARTITIONS,
    MAX_PARTITIONS_PER_TOPIC,
    MAX_PRODUCERS_PER_PARTITION,
    MAX_RECORDS_PER_BATCH,
    MAX_REQUEST_BYTES,
    MAX_UNKNOWN_BYTES,
    MAX_WAITING_LOGS_BYTES,
    MIB,
)
from ..system.open_files import MOST_CONNECTIONS, default_max_connections
from .key import (
    SECURITY,
    ConfigKey,
    bool_key,
    described,
    enum_key,
    field,
    int_key,
    keys_of,
    parsed_key,
    paths,
    text,
    text_key,
    word_key,
)
from .listener_security import (
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
    ClientAuth,
    ListenerSecurity,
    TokenAuthority,
    client_auth_key,
    mechanisms,
    principals,
    security_key,
    words_key,
)
from .log_config import LogConfig
from .resource_keys import GROUP_KEYS, HEARTBEAT
from .values import DAY_MS, DEFAULT_LINES_PER_MINUTE, DataPermissions, Durability, LogLevel, MigrationPolicy
from .values import DEFAULT_NATIVE as DEFAULT_NATIVE
from .values import Address as Address

FIXED_BYTES: Final = 96 * MIB
LEAST_MEMORY_BYTES: Final = 160 * MIB
"""Then an eighth is 8 MiB: a request of the largest usual batches fits, and 64 connections."""
CONNECTION_BYTES: Final = 128 * KIB
"""The first 64 KiB of requests, and as much of answers."""
EIGHTH: Final = 8
SIXTEENTH: Final = 16


def budget_key(usual: int, share: int, doc: str, **more: Any) -> Any:
    """A field in bytes, by default what is usual, or 1/`share` of the memory that there is for budgets if that is less."""
    default = attrs.Factory(lambda config: share_of(config.max_memory_bytes, usual, share), takes_self=True)
    return int_key(default, doc, shown=str(usual), **more)


def share_of(max_memory_bytes: int | None, usual: int, share: int) -> int:
    if max_memory_bytes is None:
        return usual
    return min(usual, (max_memory_bytes - FIXED_BYTES) // share)


def usual_connections(max_memory_bytes: int | None) -> int:
    """Return the number of connections that fit the limit of open files and the memory."""
    usual = default_max_connections()
    return share_of(max_memory_bytes, usual * CONNECTION_BYTES, EIGHTH) // CONNECTION_BYTES


def waiting_logs_bytes(max_memory_bytes: int | None) -> int:
    """For what logs that wait for space cannot write."""
    return share_of(max_memory_bytes, MAX_WAITING_LOGS_BYTES, SIXTEENTH)


def _read_prefix(value: Any) -> str:
    """Raises ValueError."""
    return text(value) if value != "" else ""


def group_key(name: str, *, low: int = 1, high: int = INT32_MAX) -> Any:
    """A field with the value that a key of groups has where a group says nothing itself."""
    key = GROUP_KEYS[name]
    least = f" At least {HEARTBEAT[0]}, unless `lenient`." if name.endswith("heartbeat.interval.ms") else ""
    return int_key(key.default, f"{key.doc}{least} A group's own `{name}` comes first.", low=low, high=high)


def check_memory(config: BrokerConfig) -> None:
    """Raises InvalidConfigError where budgets that were set by hand do not fit."""
    if config.max_memory_bytes is None:
        return
    if config.max_memory_bytes < LEAST_MEMORY_BYTES:
        raise InvalidConfigError(
            f"max_memory_bytes = {config.max_memory_bytes} is too little: a server needs at least {LEAST_MEMORY_BYTES}"
        )
    taken = {
        "max_broker_in_flight_bytes, twice": 2 * config.max_broker_in_flight_bytes,
        "the larger of max_request_bytes and max_frame_bytes": max(config.max_request_bytes, config.max_frame_bytes),
        "max_unpacked_bytes": config.max_unpacked_bytes,
        f"max_connections, {CONNECTION_BYTES} each": config.max_connections * CONNECTION_BYTES,
        "cleaner_dedupe_buffer_bytes": config.cleaner_dedupe_buffer_bytes if config.cleaner_enable else 0,
        "max_client_memory_bytes": config.max_client_memory_bytes,
        "logs that wait for space": waiting_logs_bytes(config.max_memory_bytes),
    }
    room = config.max_memory_bytes - FIXED_BYTES
    if (sum_of_all := sum(taken.values())) > room:
        each = ", ".join(f"{name}: {size}" for name, size in taken.items())
        raise InvalidConfigError(
            f"max_memory_bytes = {config.max_memory_bytes} leaves {room} for budgets, and they take {sum_of_all} "
            f"({each}). Raise it, or lower a budget that is set"
        )


def check_tokens(config: BrokerConfig) -> None:
    """Raises InvalidConfigError where keys of OAUTHBEARER contradict each other."""
    url, is_unsecured = config.sasl_oauthbearer_jwks_endpoint_url, config.sasl_oauthbearer_unsecured_tokens
    if url is not None and is_unsecured:
        raise InvalidConfigError(
            "sasl_oauthbearer_jwks_endpoint_url and sasl_oauthbearer_unsecured_tokens are both set: tokens have signatures "
            "or have none"
        )
    if (url is not None or is_unsecured) and OAUTHBEARER not in config.sasl_enabled_mechanisms:
        raise InvalidConfigError(
            f"a key of sasl_oauthbearer is set, and sasl_enabled_mechanisms has no {OAUTHBEARER}: add it, or remove the key"
        )


@attrs.frozen(kw_only=True)
class BrokerConfig:
    """Everything a server needs to know before it starts."""

    data_dirs: tuple[str, ...] = attrs.field(
        metadata=described("list", paths, "Log directories. Comma-separated in a variable.", broker_name="log.dirs")
    )
    data_permissions: DataPermissions = enum_key(
        DataPermissions.OWNER,
        "Readers of the files that the server creates in its log directories: owner (0600, 0700), group (0640, 0750) or umask.",
    )
    native: Address | None = parsed_key(
        Address.parse, "address", "Address of the native protocol. Port 0 lets the system choose.", shown=str(DEFAULT_NATIVE)
    )
    kafka: Address | None = parsed_key(
        Address.parse,
        "address",
        "Address of Kafka's protocol. Port 0 lets the system choose. Without it the server has no Kafka listener.",
    )
    kafka_advertised: Address | None = parsed_key(
        Address.parse, "address", "Address that Kafka clients get. By default the address that they connected to."
    )
    metrics: Address | None = parsed_key(
        Address.parse, "address", "HTTP address of /metrics, /livez and /readyz. Without it they are off."
    )
    http: Address | None = parsed_key(
        Address.parse, "address", "HTTP address of `POST /topics/TOPIC`, which appends records. Without it that is off."
    )
    schema_registry: Address | None = parsed_key(
        Address.parse, "address", "HTTP address of the schema registry. Without it the server has none."
    )
    topic_defaults: LogConfig = attrs.field(
        factory=LogConfig,
        metadata=described(
            "string",
            lambda value: Durability.parse(text(value)),
            "Default of the topic key of that name: fsync, group:<ms> or os.",
            name="durability",
            shown="fsync",
        ),
    )
    """Set by the key `durability`, and by a table of topic keys; see `broker_settings`."""
    node_id: int | None = int_key(None, "Identity in meta.properties.", low=0, high=2**31 - 1, shown="1")
    cluster_id: str | None = text_key("Identity in meta.properties.", shown="random")
    max_memory_bytes: int | None = int_key(
        None,
        "Memory that the server may take. Limits that are not set are derived from it: see Limits.",
        low=LEAST_MEMORY_BYTES,
        high=2**50,
    )
    max_connections: int = int_key(
        attrs.Factory(lambda config: usual_connections(config.max_memory_bytes), takes_self=True),
        "Connections of all listeners together. Further ones wait, or take the place of a peer that has sent "
        "nothing. The default is lower where the limit of open files or the memory is: see Limits.",
        low=1,
        high=100_000,
        shown=str(MOST_CONNECTIONS),
        broker_name="max.connections",
    )
    max_frame_bytes: int = budget_key(
        MAX_FRAME_BYTES, EIGHTH, "Largest frame of the native protocol, in both directions.", low=1024, high=2**31 - 1
    )
    max_request_bytes: int = budget_key(
        MAX_REQUEST_BYTES,
        EIGHTH,
        "Largest request of Kafka's protocol (Kafka: socket.request.max.bytes).",
        low=MAX_UNKNOWN_BYTES,
        high=MAX_REQUEST_BYTES,
        broker_name="socket.request.max.bytes",
    )
    max_in_flight: int = int_key(
        MAX_IN_FLIGHT,
        "Unanswered requests of a connection. Above it the server stops reading from the connection.",
        low=1,
        high=10_000,
    )
    max_in_flight_bytes: int = int_key(
        MAX_IN_FLIGHT_BYTES, "Bytes of unanswered requests of a connection.", low=1024, high=2**40
    )
    max_broker_in_flight_bytes: int = budget_key(
        256 * MIB,
        EIGHTH,
        "Memory for requests of all connections, and the same again for responses that clients have not read.",
        low=1024,
        high=2**40,
    )
    max_unpacked_bytes: int = budget_key(
        MAX_DECOMPRESSED_BYTES,
        EIGHTH,
        "Unpacked size of one batch of a producer. Above it the error is MESSAGE_TOO_LARGE.",
        low=MIB,
        high=MAX_DECOMPRESSED_BYTES,
    )
    max_records_per_batch: int = int_key(
        MAX_RECORDS_PER_BATCH,
        "Records in one batch of a producer. Headers may be twice as many. Above it the error is "
        "MESSAGE_TOO_LARGE, at which Kafka's own producer divides the batch.",
        low=1000,
        high=2**31 - 1,
    )
    max_headers_per_record: int = int_key(
        MAX_HEADERS_PER_RECORD, "Headers of a record. Above it the error is INVALID_RECORD.", low=100, high=2**31 - 1
    )
    checkpoint_interval_ms: int = int_key(
        60_000,
        "Interval at which changed recovery points, high watermarks and log start offsets are written.",
        low=100,
        high=DAY_MS,
        broker_name="log.flush.offset.checkpoint.interval.ms",
    )
    clock_check: bool = bool_key(
        True,
        "Suspend retention.ms and all expiry after jumps of the wall clock, and while it is before the newest record or the "
        "date of this version. `false`: trust the clock.",
    )
    retention_check_interval_ms: int = int_key(
        300_000,
        "Interval of the checks for segments that retention deletes.",
        low=100,
        high=DAY_MS,
        broker_name="log.retention.check.interval.ms",
        kind="long",
    )
    producer_id_expiration_ms: int = int_key(
        DAY_MS,
        "Time that a producer's sequence numbers are remembered after its last append.",
        low=1,
        high=2**53,
        broker_name="producer.id.expiration.ms",
        kind="int",
    )
    max_partitions: int = int_key(
        MAX_PARTITIONS,
        "Partitions that all topics together may come to by being created or grown. Those that exist are served however many "
        "they are.",
        low=1,
        high=1_000_000,
    )
    max_producers_per_partition: int = int_key(
        MAX_PRODUCERS_PER_PARTITION,
        "Producer ids that a partition remembers at a time. Another one is refused until older ones have expired.",
        low=1,
        high=1_000_000,
    )
    disk_reserve_bytes: int = int_key(
        -1,
        "Free space of a log directory's device below which `disk.full.policy` acts. 0: never. -1: 1 % of "
        "the device, at most 64 MiB.",
        low=-1,
        high=2**50,
    )
    log_max_bytes: int = int_key(
        0, "Size of all logs together from which on `disk.full.policy` acts. 0: no limit.", low=0, high=2**60
    )
    cleaner_enable: bool = bool_key(True, "Compaction of topics with cleanup.policy=compact.", broker_name="log.cleaner.enable")
    cleaner_dedupe_buffer_bytes: int = budget_key(
        128 * MIB,
        EIGHTH,
        "Memory of a compaction for keys, 24 bytes each. Further keys are compacted in the next round.",
        low=MIB,
        high=2**40,
        broker_name="log.cleaner.dedupe.buffer.size",
        live=True,
    )
    cleaner_io_max_bytes_per_second: int = int_key(
        0, "Limit on the reads and writes of compaction. 0: none.", low=0, high=2**50, live=True
    )
    cleaner_backoff_ms: int = int_key(
        15_000,
        "Pause of compaction when nothing is due.",
        low=1,
        high=DAY_MS,
        broker_name="log.cleaner.backoff.ms",
        kind="long",
    )
    scrub_bytes_per_second: int = int_key(
        0, "Rate at which closed segments are read and checked for damage. 0: never.", low=0, high=2**50
    )
    scrub_interval_ms: int = int_key(
        7 * DAY_MS, "Pause of scrubbing between two passes through all segments.", low=1, high=2**53
    )
    disk_endurance_bytes: int = int_key(
        0,
        "Rated endurance (TBW) of the disk of a log directory, for the estimate of its remaining days. 0: unknown.",
        low=0,
        high=2**60,
    )
    offsets_topic_num_partitions: int = int_key(
        1,
        "Partitions of `__consumer_offsets` when it is created. One groups all commits into one write and sync.",
        low=1,
        high=MAX_PARTITIONS_PER_TOPIC,
        broker_name="offsets.topic.num.partitions",
    )
    offsets_retention_ms: int = int_key(
        7 * DAY_MS,
        "Time that a committed offset is kept after its last commit.",
        low=1,
        high=2**53,
        broker_name="offsets.retention.minutes",
        kind="int",
    )
    offset_metadata_max_bytes: int = int_key(
        4096,
        "Largest note that can be committed with an offset.",
        low=0,
        high=INT16_MAX,
        broker_name="offset.metadata.max.bytes",
    )
    group_initial_rebalance_delay_ms: int = int_key(
        3_000,
        "Time that an empty group waits for more members after the first one, and again after each further one.",
        low=0,
        high=INT32_MAX,
    )
    group_min_session_timeout_ms: int = int_key(
        6_000, "Smallest session timeout that a member of a group may request.", low=1, high=INT32_MAX
    )
    group_max_session_timeout_ms: int = int_key(
        1_800_000, "Largest session timeout that a member of a group may request.", low=1, high=INT32_MAX
    )
    group_consumer_heartbeat_interval_ms: int = group_key("consumer.heartbeat.interval.ms")
    group_consumer_session_timeout_ms: int = group_key("consumer.session.timeout.ms")
    group_consumer_migration_policy: MigrationPolicy = enum_key(
        MigrationPolicy.BIDIRECTIONAL,
        "Changes of the protocol of a group that has members: from the classic protocol to `consumer` (upgrade), back "
        "(downgrade), both (bidirectional) or none (disabled).",
        broker_name="group.consumer.migration.policy",
    )
    group_share_heartbeat_interval_ms: int = group_key("share.heartbeat.interval.ms")
    group_share_session_timeout_ms: int = group_key("share.session.timeout.ms")
    group_share_delivery_count_limit: int = group_key("share.delivery.count.limit", low=2, high=10)
    group_share_record_lock_duration_ms: int = group_key("share.record.lock.duration.ms", low=1_000, high=3_600_000)
    group_share_partition_max_record_locks: int = group_key("share.partition.max.record.locks", low=100, high=10_000)
    group_share_max_share_sessions: int = int_key(
        2_000, "Share sessions of a node. Further ones are refused.", low=1, high=INT32_MAX
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = bool_key(
        False,
        "Creation of a missing dead-letter queue of a share group when its first record is written.",
        broker_name="errors.deadletterqueue.auto.create.topics.enable",
        live=True,
    )
    errors_deadletterqueue_topic_name_prefix: str = attrs.field(
        default="dlq.",
        metadata=described(
            "string",
            _read_prefix,
            "Beginning of the names of dead-letter queues. Others are not written. Empty: any name.",
            broker_name="errors.deadletterqueue.topic.name.prefix",
            live=True,
        ),
    )
    group_share_max_size: int = int_key(200, "Members of a share group. Further ones are refused.", low=1, high=1000)
    group_streams_heartbeat_interval_ms: int = group_key("streams.heartbeat.interval.ms")
    group_streams_session_timeout_ms: int = group_key("streams.session.timeout.ms")
    group_streams_initial_rebalance_delay_ms: int = group_key("streams.initial.rebalance.delay.ms", low=0)
    group_streams_num_standby_replicas: int = group_key("streams.num.standby.replicas", low=0, high=2)
    group_streams_max_size: int = int_key(
        10_000, "Members of a Streams group. Further ones are refused.", low=1, high=INT32_MAX
    )
    telemetry_enable: bool = bool_key(
        False, "Collection of metrics from clients, by subscriptions; /metrics shows them (KIP-714)."
    )
    telemetry_max_bytes: int = int_key(
        1_048_576, "Metrics that a client may send at once, as they are sent.", low=1, high=16 * 1_048_576
    )
    group_max_size: int = int_key(10_000, "Members of a group. Further ones are refused.", low=1, high=INT32_MAX)
    group_max_metadata_bytes: int = budget_key(
        256 * MIB,
        SIXTEENTH,
        "Metadata that members of classic groups send when they join, of all groups together. More is refused.",
        low=MIB,
        high=2**40,
    )
    max_client_memory_bytes: int = budget_key(
        512 * MIB,
        EIGHTH,
        "Memory for state of clients, of all of them together: members of groups, committed offsets, "
        "transactional ids, share sessions, leases and so on. More is refused.",
        low=MIB,
        high=2**40,
    )
    max_groups: int = int_key(10_000, "Groups that have or have had members. Further ones are refused.", low=1, high=INT32_MAX)
    transaction_state_log_num_partitions: int = int_key(
        1,
        "Partitions of `__transaction_state` when it is created.",
        low=1,
        high=MAX_PARTITIONS_PER_TOPIC,
        broker_name="transaction.state.log.num.partitions",
    )
    transaction_max_timeout_ms: int = int_key(
        900_000,
        "Largest timeout that a transactional producer may request.",
        low=1,
        high=INT32_MAX,
        broker_name="transaction.max.timeout.ms",
    )
    transactional_id_expiration_ms: int = int_key(
        7 * DAY_MS,
        "Time that a transactional id is remembered after its last transaction.",
        low=1,
        high=2**53,
        broker_name="transactional.id.expiration.ms",
        kind="int",
    )
    stage_retention_ms: int = int_key(
        DAY_MS,
        "Time that staged records are kept without a commit, an abort or an addition. A start of the server starts it again.",
        low=1000,
        high=2**53,
        live=True,
    )
    max_staged_bytes: int = int_key(
        2**34,
        "Staged records of all applications together. A file counts for 4 KiB at least. Above it staging is refused.",
        low=MIB,
        high=2**50,
        live=True,
    )
    stage_commit_expiration_ms: int = int_key(
        30 * DAY_MS,
        "Time that the last committed version of an application is remembered.",
        low=1000,
        high=2**53,
        live=True,
    )
    max_lease_ms: int = int_key(
        3_600_000,
        "Longest lease of segment files that a reader may request. It can be renewed.",
        low=1000,
        high=2**53,
        live=True,
    )
    auto_create_topics_enable: bool = bool_key(
        True,
        "Creation of a missing topic when a Kafka client requests it and allows that.",
        broker_name="auto.create.topics.enable",
        live=True,
    )
    num_partitions: int = int_key(
        1,
        "Partitions of a topic for which a Kafka client names no number.",
        low=1,
        high=MAX_PARTITIONS_PER_TOPIC,
        broker_name="num.partitions",
        live=True,
    )
    lenient: bool = bool_key(
        False, "For tests: Kafka clients may use unknown topic keys, and more replicas than there are nodes."
    )
    insecure: bool = bool_key(
        False,
        "Permission to listen on another address than loopback without logins of clients.",
        section=SECURITY,
    )
    metrics_token_file: str | None = text_key(
        "File with the token that readers of /metrics send: `Authorization: Bearer TOKEN`.", kind="path", section=SECURITY
    )
    native_security: ListenerSecurity = security_key("the native protocol")
    kafka_security: ListenerSecurity = security_key("Kafka's protocol")
    http_security: ListenerSecurity = security_key("the address `http`")
    ssl_certificate_file: str | None = text_key(
        "PEM with the server's certificate, and those between it and its CA.", kind="path", section=SECURITY, live=True
    )
    ssl_key_file: str | None = text_key(
        "PEM with its private key, without a passphrase. By default in the certificate's file.",
        kind="path",
        section=SECURITY,
        live=True,
    )
    ssl_client_ca_file: str | None = text_key(
        "PEM with the CAs that certificates of clients are from.", kind="path", section=SECURITY, live=True
    )
    native_ssl_client_auth: ClientAuth = client_auth_key("the native protocol")
    kafka_ssl_client_auth: ClientAuth = client_auth_key("Kafka's protocol")
    ssl_handshake_timeout_ms: int = int_key(
        10_000,
        "Time for a TLS handshake. After it the connection is closed.",
        low=100,
        high=600_000,
        section=SECURITY,
        live=True,
    )
    sasl_enabled_mechanisms: tuple[str, ...] = field(
        ConfigKey(
            type="list",
            default=PASSWORD_MECHANISMS,
            read=mechanisms,
            doc="Mechanisms for logins. OAUTHBEARER also needs `sasl_oauthbearer_jwks_endpoint_url`.",
            section=SECURITY,
        )
    )
    sasl_users_file: str | None = text_key(
        "TOML with users: see the section on security.", kind="path", section=SECURITY, live=True
    )
    sasl_users: Mapping[str, str] = attrs.field(factory=dict, repr=lambda users: repr(list(users)))
    """Passwords by user: for embedders, who have no file."""
    sasl_oauthbearer_jwks_endpoint_url: str | None = text_key(
        "The keys that verify tokens of OAUTHBEARER, a JSON Web Key Set: https://HOST/PATH or file:///PATH. http:// is for "
        "this machine, or needs `insecure`.",
        section=SECURITY,
        broker_name="sasl.oauthbearer.jwks.endpoint.url",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = int_key(
        3_600_000,
        "Age at which the next login reads the keys again. An unknown key does so too, at most every 10 s.",
        low=1_000,
        high=2**53,
        section=SECURITY,
        broker_name="sasl.oauthbearer.jwks.endpoint.refresh.ms",
    )
    sasl_oauthbearer_expected_issuer: str | None = text_key(
        "The issuer that a token must have (claim `iss`). Without it any issuer is accepted whose keys are known.",
        section=SECURITY,
        broker_name="sasl.oauthbearer.expected.issuer",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = words_key(
        "Audiences, one of which a token must have (claim `aud`). Without it a signed token must name none.",
        broker_name="sasl.oauthbearer.expected.audience",
    )
    sasl_oauthbearer_required_scope: tuple[str, ...] = words_key("Scopes, all of which a token must have.")
    sasl_oauthbearer_clock_skew_seconds: int = int_key(
        30,
        "Difference to the issuer's clock that is allowed when the times of a token are checked.",
        low=0,
        high=3_600,
        section=SECURITY,
        broker_name="sasl.oauthbearer.clock.skew.seconds",
    )
    sasl_oauthbearer_sub_claim_name: str = word_key(
        "sub",
        "The claim that names the principal, as `User:` and its text.",
        section=SECURITY,
        broker_name="sasl.oauthbearer.sub.claim.name",
    )
    sasl_oauthbearer_scope_claim_name: str = word_key(
        "scope",
        "The claim with the scopes, a text with spaces between two, or a list.",
        section=SECURITY,
        broker_name="sasl.oauthbearer.scope.claim.name",
    )
    sasl_oauthbearer_unsecured_tokens: bool = bool_key(
        False,
        "For tests: accept tokens without a signature (alg=none), which any client can write. Such listeners count as "
        "unauthenticated.",
        section=SECURITY,
    )
    token_authority: TokenAuthority | None = attrs.field(default=None, repr=False)
    """The issuer inside the program: for embedders, who have no URL."""
    connections_max_reauth_ms: int = int_key(
        0,
        "Lifetime of a login. After it the client logs in again (KIP-368) or is disconnected. 0: unlimited, and by OAUTHBEARER "
        "until the token expires.",
        low=0,
        high=2**53,
        section=SECURITY,
        broker_name="connections.max.reauth.ms",
        live=True,
    )
    connection_failed_authentication_delay_ms: int = int_key(
        100, "Delay of the response to a failed login.", low=0, high=10_000, section=SECURITY, live=True
    )
    acl_enable: bool = bool_key(
        False, "Enforcement of ACLs, on both protocols. Without it every client may do everything.", section=SECURITY
    )
    super_users: tuple[str, ...] = attrs.field(
        default=(),
        metadata=described(
            "list", principals, "Users who may do everything: User:alice;User:bob.", section=SECURITY, live=True
        ),
    )
    audit_file: str | None = text_key(
        "File to which logins, denials and changes are appended, a JSON object a line. Without it they are not.",
        kind="path",
        section=SECURITY,
    )
    allow_everyone_if_no_acl_found: bool = bool_key(
        False, "Free access to resources without any ACL.", section=SECURITY, live=True
    )
    log_level: LogLevel = enum_key(
        LogLevel.INFO, "The least important log lines that are written: debug, info, warning, error.", live=True
    )
    log_lines_per_minute: int = int_key(
        DEFAULT_LINES_PER_MINUTE,
        "Log lines of one kind, by their text without its values, in a minute. A long line counts as "
        "several. A later line reports how many more there were. 0: all.",
        low=0,
        high=INT32_MAX,
        live=True,
    )
    stop_grace_ms: int = int_key(
        5_000, "Time that open connections have to finish their requests when the server stops.", low=0, high=600_000, live=True
    )
    stop_timeout_ms: int = int_key(
        30_000,
        "Time for the coordinators, enqueued appends and the final flush together. After it the shutdown is not clean.",
        low=0,
        high=3_600_000,
        live=True,
    )

    adopted_topics: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Topic configuration for partition directories that have no entry in topics.json."""
    durable: bool = True
    """False for a directory that goes with the process: its small files are not synced."""

    def __attrs_post_init__(self) -> None:
        check_memory(self)
        check_tokens(self)


BROKER_KEYS: Final = keys_of(BrokerConfig)
SECURITY_KEYS: Final = {key.name: key for key in BROKER_KEYS.values() if key.section == SECURITY}
"""Those of TLS, logins and ACLs."""
