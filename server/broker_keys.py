"""The server's own keys: names, how a value is read and what is valid, what people are told. The table of them in
docs/operations.md is made from here; what is true when nothing is said is in `BrokerConfig`. Topic keys are in `config`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import attrs

from ..protocol.limits import (
    INT16_MAX,
    INT32_MAX,
    MAX_FRAME_BYTES,
    MAX_IN_FLIGHT,
    MAX_IN_FLIGHT_BYTES,
    MAX_PARTITIONS_PER_TOPIC,
    MAX_PRODUCERS_PER_PARTITION,
    MIB,
)
from .broker_config import SASL_MECHANISMS, Address, ClientAuth, ListenerSecurity
from .config import Durability

E = TypeVar("E", bound=enum.Enum)


@attrs.frozen(kw_only=True)
class BrokerKey:
    """One key of the server: its name in the file (and, upper-cased after TRIOLOG_, in the environment)."""

    name: str
    type: str
    read: Callable[[Any], Any]
    doc: str
    default: str
    unit: str = ""


def _number(name: str, default: int, doc: str, *, unit: str = "", low: int, high: int) -> BrokerKey:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(f"{value!r} is not a whole number")
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"{number} is not in {low}..{high}")
        return number

    return BrokerKey(name=name, type="int", read=read, doc=doc, default=str(default), unit=unit)


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return str(value).lower() == "true"


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a text")
    return value


def _paths(value: Any) -> tuple[str, ...]:
    paths = value.split(",") if isinstance(value, str) else value
    if not isinstance(paths, list | tuple) or not paths or not all(isinstance(path, str) and path for path in paths):
        raise ValueError(f"{value!r} is not a list of directories")
    return tuple(paths)


def _one_of(kind: type[E]) -> Callable[[Any], E]:
    def read(value: Any) -> E:
        try:
            return kind(str(value).lower())
        except ValueError:
            raise ValueError(f"{value!r} is none of {', '.join(each.value for each in kind)}") from None

    return read


def _mechanisms(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not set(names) <= set(SASL_MECHANISMS):
        raise ValueError(f"{value!r} is not a list of some of {', '.join(SASL_MECHANISMS)}")
    return tuple(names)


def _principals(value: Any) -> tuple[str, ...]:
    """Names of certificates have commas in them, so a semicolon is between two, as in Kafka."""
    names = [name.strip() for name in value.split(";")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and ":" in name for name in names):
        raise ValueError(f"{value!r} is not a list such as User:alice;User:bob")
    return tuple(names)


def _security(name: str, protocol: str, valid: Sequence[ListenerSecurity]) -> BrokerKey:
    def read(value: Any) -> ListenerSecurity:
        security = _one_of(ListenerSecurity)(value)
        if security not in valid:
            raise ValueError(f"{value!r} is none of {', '.join(each.value for each in valid)}")
        return security

    choices = ", ".join(each.value for each in valid)
    doc = f"How {protocol} is spoken: {choices}."
    return BrokerKey(name=name, type="string", read=read, default="plaintext", doc=doc)


def _client_auth(name: str, protocol: str) -> BrokerKey:
    doc = f"Whether clients of {protocol} show a certificate over TLS: none, requested or required."
    return BrokerKey(name=name, type="string", read=_one_of(ClientAuth), default="none", doc=doc)


SECURITY_KEYS: Final = (
    _security("native_security", "the native protocol", (ListenerSecurity.PLAINTEXT, ListenerSecurity.SSL)),
    _security("kafka_security", "Kafka's protocol", tuple(ListenerSecurity)),
    BrokerKey(
        name="ssl_certificate_file",
        type="path",
        read=_text,
        default="-",
        doc="PEM with the server's certificate, and those between it and its CA.",
    ),
    BrokerKey(
        name="ssl_key_file",
        type="path",
        read=_text,
        default="-",
        doc="PEM with its private key, without a passphrase; by default in the certificate's file.",
    ),
    BrokerKey(
        name="ssl_client_ca_file",
        type="path",
        read=_text,
        default="-",
        doc="PEM with the CAs that certificates of clients are from.",
    ),
    _client_auth("native_ssl_client_auth", "the native protocol"),
    _client_auth("kafka_ssl_client_auth", "Kafka's protocol"),
    _number(
        "ssl_handshake_timeout_ms",
        10_000,
        "How long a TLS handshake may take; then the connection is closed.",
        unit="ms",
        low=100,
        high=600_000,
    ),
    BrokerKey(
        name="sasl_enabled_mechanisms",
        type="list",
        read=_mechanisms,
        default=",".join(SASL_MECHANISMS),
        doc="How users may log in.",
    ),
    BrokerKey(
        name="sasl_users_file", type="path", read=_text, default="-", doc="TOML with users: see the section on security."
    ),
    _number(
        "connections_max_reauth_ms",
        0,
        "How long a login holds; then the client logs in again (KIP-368) or is disconnected. 0: for ever.",
        unit="ms",
        low=0,
        high=2**53,
    ),
    _number(
        "connection_failed_authentication_delay_ms",
        100,
        "How long the answer to a login that failed is held back.",
        unit="ms",
        low=0,
        high=10_000,
    ),
    BrokerKey(
        name="acl_enable",
        type="bool",
        read=_switch,
        default="false",
        doc="Whether ACLs are enforced on Kafka's protocol. Without them everybody may do everything.",
    ),
    BrokerKey(
        name="super_users", type="list", read=_principals, default="-", doc="Who may do everything: User:alice;User:bob."
    ),
    BrokerKey(
        name="allow_everyone_if_no_acl_found",
        type="bool",
        read=_switch,
        default="false",
        doc="Whether everybody may do what they like with resources that no ACL is about.",
    ),
)


BROKER_KEYS: Final[dict[str, BrokerKey]] = {
    key.name: key
    for key in (
        BrokerKey(
            name="data_dirs", type="list", read=_paths, default="-", doc="Log directories; comma-separated in a variable."
        ),
        BrokerKey(
            name="native",
            type="address",
            read=lambda value: Address.parse(_text(value)),
            default="127.0.0.1:9095",
            doc="Where the native protocol listens; port 0 lets the system choose.",
        ),
        BrokerKey(
            name="kafka",
            type="address",
            read=lambda value: Address.parse(_text(value)),
            default="-",
            doc="Where Kafka's protocol listens; port 0 lets the system choose. Without it nothing does.",
        ),
        BrokerKey(
            name="kafka_advertised",
            type="address",
            read=lambda value: Address.parse(_text(value)),
            default="-",
            doc="Where Kafka clients are sent; by default to the address that they connected to.",
        ),
        BrokerKey(
            name="metrics",
            type="address",
            read=lambda value: Address.parse(_text(value)),
            default="-",
            doc="Where /metrics, /livez and /readyz are answered over HTTP. Without it nothing is.",
        ),
        BrokerKey(
            name="durability",
            type="string",
            read=lambda value: Durability.parse(_text(value)),
            default="fsync",
            doc="Default of the topic key of that name: fsync, group:<ms> or os.",
        ),
        _number("node_id", 1, "Identity in meta.properties.", low=0, high=2**31 - 1),
        BrokerKey(name="cluster_id", type="string", read=_text, default="random", doc="Identity in meta.properties."),
        _number("max_connections", 1000, "Further ones wait to be accepted.", low=1, high=100_000),
        _number(
            "max_frame_bytes",
            MAX_FRAME_BYTES,
            "Largest frame of the native protocol, in both directions.",
            unit="bytes",
            low=1024,
            high=2**31 - 1,
        ),
        _number(
            "max_in_flight",
            MAX_IN_FLIGHT,
            "Unanswered requests of a connection; past it the server stops reading from it.",
            low=1,
            high=10_000,
        ),
        _number(
            "max_in_flight_bytes",
            MAX_IN_FLIGHT_BYTES,
            "Bytes of unanswered requests of a connection.",
            unit="bytes",
            low=1024,
            high=2**40,
        ),
        _number(
            "max_broker_in_flight_bytes",
            256 * MIB,
            "Bytes of unanswered requests of all connections.",
            unit="bytes",
            low=1024,
            high=2**40,
        ),
        _number(
            "checkpoint_interval_ms",
            60_000,
            "How often recovery points, high watermarks and log start offsets are written, if they changed.",
            unit="ms",
            low=100,
            high=86_400_000,
        ),
        _number(
            "retention_check_interval_ms",
            300_000,
            "How often it is looked which segments retention lets go.",
            unit="ms",
            low=100,
            high=86_400_000,
        ),
        _number(
            "producer_id_expiration_ms",
            86_400_000,
            "How long a producer's sequence numbers are remembered after its last append.",
            unit="ms",
            low=1,
            high=2**53,
        ),
        _number(
            "max_producers_per_partition",
            MAX_PRODUCERS_PER_PARTITION,
            "Producer ids that a partition remembers at a time; another one is refused until older ones have expired.",
            low=1,
            high=1_000_000,
        ),
        _number(
            "disk_reserve_bytes",
            0,
            "Free space of a log directory's device below which `disk.full.policy` acts; 0: never.",
            unit="bytes",
            low=0,
            high=2**50,
        ),
        BrokerKey(
            name="cleaner_enable",
            type="bool",
            read=_switch,
            default="true",
            doc="Whether topics with cleanup.policy=compact are compacted.",
        ),
        _number(
            "cleaner_dedupe_buffer_bytes",
            128 * MIB,
            "Memory of a compaction for keys, 24 bytes each. What does not fit is compacted in the next round.",
            unit="bytes",
            low=MIB,
            high=2**40,
        ),
        _number(
            "cleaner_io_max_bytes_per_second",
            0,
            "Limit on what compaction reads and writes; 0: none.",
            unit="bytes/s",
            low=0,
            high=2**50,
        ),
        _number(
            "cleaner_backoff_ms", 15_000, "How long compaction rests when nothing is due.", unit="ms", low=1, high=86_400_000
        ),
        _number(
            "scrub_bytes_per_second",
            0,
            "How fast closed segments are read and checked for damage; 0: never.",
            unit="bytes/s",
            low=0,
            high=2**50,
        ),
        _number(
            "scrub_interval_ms",
            604_800_000,
            "How long scrubbing rests between two passes over all segments.",
            unit="ms",
            low=1,
            high=2**53,
        ),
        _number(
            "offsets_topic_num_partitions",
            1,
            "Partitions of `__consumer_offsets` when it is made; one groups all commits into one write and sync.",
            low=1,
            high=MAX_PARTITIONS_PER_TOPIC,
        ),
        _number(
            "offsets_retention_ms",
            604_800_000,
            "How long a committed offset is kept after its last commit.",
            unit="ms",
            low=1,
            high=2**53,
        ),
        _number(
            "offset_metadata_max_bytes",
            4096,
            "Largest note that can be committed with an offset.",
            unit="bytes",
            low=0,
            high=INT16_MAX,
        ),
        _number(
            "group_initial_rebalance_delay_ms",
            3_000,
            "How long an empty group waits for more members after the first one, and again after each that comes.",
            unit="ms",
            low=0,
            high=INT32_MAX,
        ),
        _number(
            "group_min_session_timeout_ms",
            6_000,
            "Smallest session timeout that a member of a group may ask for.",
            unit="ms",
            low=1,
            high=INT32_MAX,
        ),
        _number(
            "group_max_session_timeout_ms",
            1_800_000,
            "Largest session timeout that a member of a group may ask for.",
            unit="ms",
            low=1,
            high=INT32_MAX,
        ),
        _number(
            "group_consumer_heartbeat_interval_ms",
            5_000,
            "How often members of groups whose assignments the server makes are to send a heartbeat; at least 5000, unless "
            "`lenient`.",
            unit="ms",
            low=1,
            high=INT32_MAX,
        ),
        _number(
            "group_consumer_session_timeout_ms",
            45_000,
            "How long such a member may be silent before the others get what it has.",
            unit="ms",
            low=1,
            high=INT32_MAX,
        ),
        _number("group_max_size", 10_000, "Members of a group; further ones are refused.", low=1, high=INT32_MAX),
        _number("max_groups", 10_000, "Groups that have or have had members; further ones are refused.", low=1, high=INT32_MAX),
        _number(
            "transaction_state_log_num_partitions",
            1,
            "Partitions of `__transaction_state` when it is made.",
            low=1,
            high=MAX_PARTITIONS_PER_TOPIC,
        ),
        _number(
            "transaction_max_timeout_ms",
            900_000,
            "Largest timeout that a transactional producer may ask for.",
            unit="ms",
            low=1,
            high=INT32_MAX,
        ),
        _number(
            "transactional_id_expiration_ms",
            604_800_000,
            "How long a transactional id is remembered after its last transaction.",
            unit="ms",
            low=1,
            high=2**53,
        ),
        _number(
            "stage_retention_ms",
            86_400_000,
            "How long staged records are kept that nobody commits, aborts or adds to; a start of the server begins anew.",
            unit="ms",
            low=1000,
            high=2**53,
        ),
        _number(
            "max_staged_bytes",
            2**34,
            "Staged records of all applications together; a file counts for 4 KiB at least. Past it staging is refused.",
            unit="bytes",
            low=MIB,
            high=2**50,
        ),
        _number(
            "stage_commit_expiration_ms",
            2_592_000_000,
            "How long it is remembered which version an application has committed last.",
            unit="ms",
            low=1000,
            high=2**53,
        ),
        _number(
            "max_lease_ms",
            3_600_000,
            "Longest lease of segment files that a reader may ask for; it can be renewed.",
            unit="ms",
            low=1000,
            high=2**53,
        ),
        BrokerKey(
            name="auto_create_topics_enable",
            type="bool",
            read=_switch,
            default="true",
            doc="Whether a Kafka client that asks for a topic that is not there, and lets it be made, gets one.",
        ),
        _number(
            "num_partitions",
            1,
            "Partitions of a topic for which a Kafka client names no number.",
            low=1,
            high=MAX_PARTITIONS_PER_TOPIC,
        ),
        BrokerKey(
            name="lenient",
            type="bool",
            read=_switch,
            default="false",
            doc="For tests: Kafka clients may name topic keys that do not exist, and more replicas than there are nodes.",
        ),
        *SECURITY_KEYS,
        _number(
            "stop_grace_ms",
            5000,
            "How long open connections may finish their requests when the server stops.",
            unit="ms",
            low=0,
            high=600_000,
        ),
        _number(
            "stop_timeout_ms",
            30_000,
            "How long enqueued appends and the final flush may take; after that the stop is not clean.",
            unit="ms",
            low=0,
            high=3_600_000,
        ),
    )
}
