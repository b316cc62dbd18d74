"""What Kafka clients are told of the server's keys, under the names that Kafka has for them. Those that
topics follow can be set while the server runs; the others are in its file, its environment and its command line.

Those of ours that Kafka has no name for are not listed. Source of names and types: KafkaConfig (4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from ...broker import ALL_BROKERS
from ...config import KNOWN_KEYS
from ...config.broker_keys import LIVE_SERVER_KEYS, SERVER_KEYS
from ...settings.broker_config import BrokerConfig
from .config_entries import TYPES, Entry, Source, Synonym, server_synonyms
from .door import Call

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _minutes(milliseconds: int) -> str:
    return str(milliseconds // MINUTE_MS)


def _list(values: tuple[str, ...]) -> str:
    return ",".join(values)


CONFIGURED: Final[dict[str, tuple[str, str, str, Callable[[Any], str]]]] = {
    "auto.create.topics.enable": ("auto_create_topics_enable", "boolean", "Whether asking for a topic makes it.", _text),
    "num.partitions": ("num_partitions", "int", "Partitions of a topic for which no number is named.", _text),
    "log.dirs": ("data_dirs", "list", "Log directories.", _list),
    "socket.request.max.bytes": ("max_request_bytes", "int", "Largest request.", _text),
    "max.connections": ("max_connections", "int", "Further ones wait to be accepted.", _text),
    "log.retention.check.interval.ms": (
        "retention_check_interval_ms",
        "long",
        "How often it is looked which segments retention lets go.",
        _text,
    ),
    "log.flush.offset.checkpoint.interval.ms": (
        "checkpoint_interval_ms",
        "int",
        "How often recovery points are written, if they changed.",
        _text,
    ),
    "log.cleaner.enable": ("cleaner_enable", "boolean", "Whether topics are compacted.", _text),
    "log.cleaner.backoff.ms": ("cleaner_backoff_ms", "long", "How long compaction rests when nothing is due.", _text),
    "log.cleaner.dedupe.buffer.size": ("cleaner_dedupe_buffer_bytes", "long", "Memory of a compaction for keys.", _text),
    "producer.id.expiration.ms": (
        "producer_id_expiration_ms",
        "int",
        "How long a producer's sequence numbers are remembered.",
        _text,
    ),
    "connections.max.reauth.ms": ("connections_max_reauth_ms", "long", "After it clients log in again; 0: never.", _text),
    "offsets.topic.num.partitions": (
        "offsets_topic_num_partitions",
        "int",
        "Partitions of __consumer_offsets when it is made.",
        _text,
    ),
    "offsets.retention.minutes": ("offsets_retention_ms", "int", "How long committed offsets are kept.", _minutes),
    "offset.metadata.max.bytes": ("offset_metadata_max_bytes", "int", "Largest note of a committed offset.", _text),
    "transaction.state.log.num.partitions": (
        "transaction_state_log_num_partitions",
        "int",
        "Partitions of __transaction_state when it is made.",
        _text,
    ),
    "transaction.max.timeout.ms": ("transaction_max_timeout_ms", "int", "Largest timeout of a transaction.", _text),
    "transactional.id.expiration.ms": (
        "transactional_id_expiration_ms",
        "int",
        "How long a transactional id is remembered after its last transaction.",
        _text,
    ),
}
"""Kafka's key -> field of BrokerConfig, type, explanation, and how its value is told."""

FIXED: Final = {
    "default.replication.factor": ("1", "int", "There is one replica of everything."),
    "offsets.topic.replication.factor": ("1", "short", "There is one replica of everything."),
    "transaction.state.log.replication.factor": ("1", "short", "There is one replica of everything."),
    "transaction.state.log.min.isr": ("1", "int", "There is one replica of everything."),
    "delete.topic.enable": ("true", "boolean", "Topics can be deleted."),
    "auto.leader.rebalance.enable": ("false", "boolean", "A partition has one replica, its leader."),
    "process.roles": ("broker,controller", "list", "One node is everything."),
    "remote.log.storage.system.enable": ("false", "boolean", "There is no tiered storage."),
}
"""Kafka's key -> value, type, explanation: what cannot be configured here and is so."""


def broker_entries(call: Call) -> Iterator[Entry]:
    """Every key of a broker."""
    yield from _identity(call)
    for key in SERVER_KEYS:
        yield _live_entry(key, server_synonyms(call.broker, key))
    for key, hours in (("retention.ms", "log.retention.hours"), ("segment.ms", "log.roll.hours")):
        synonym = server_synonyms(call.broker, key)[-1]
        rounded = str(int(synonym.value) // HOUR_MS) if int(synonym.value) >= 0 else "-1"
        yield _entry(hours, rounded, "int", f"{synonym.name} counts; this is the same in whole hours.", synonym.source)
    defaults = BrokerConfig(data_dirs=())
    for name, (field, kind, doc, tell) in CONFIGURED.items():
        value = getattr(call.broker.config, field)
        yield _entry(
            name, tell(value), kind, doc, Source.DEFAULT if value == getattr(defaults, field) else Source.STATIC_BROKER
        )
    for name, (text, kind, doc) in FIXED.items():
        yield _entry(name, text, kind, doc, Source.DEFAULT)


def entries_of_all_brokers(call: Call) -> Iterator[Entry]:
    """What was set for all brokers while they run."""
    for name in call.broker.broker_configs.overrides().get(ALL_BROKERS, {}):
        key = LIVE_SERVER_KEYS[name]
        synonyms = server_synonyms(call.broker, key)
        yield _live_entry(key, [each for each in synonyms if each.source is Source.DYNAMIC_DEFAULT_BROKER])


def _live_entry(key: str, synonyms: list[Synonym]) -> Entry:
    """Of what can be set while the server runs."""
    known, (name, value, source) = KNOWN_KEYS[key], synonyms[0]
    return Entry(
        name=name, value=value, source=source, type=TYPES[known.type], doc=known.doc, is_read_only=False, synonyms=synonyms
    )


def _identity(call: Call) -> Iterator[Entry]:
    node = next(node for node in call.door.nodes(call.session) if node.node_id == call.door.node_id)
    host = f"[{node.host}]" if ":" in node.host else node.host
    config, listener = call.broker.config, f"{call.broker.config.kafka_security.name}://{host}:{node.port}"
    mechanisms = _list(config.sasl_enabled_mechanisms) if config.kafka_security.has_sasl else ""
    for name in ("node.id", "broker.id"):
        yield _entry(name, str(node.node_id), "int", "Identity of the node.", Source.STATIC_BROKER)
    for name in ("listeners", "advertised.listeners"):
        yield _entry(name, listener, "string", "Where Kafka clients are sent.", Source.STATIC_BROKER)
    yield _entry("sasl.enabled.mechanisms", mechanisms, "list", "How clients can log in.", Source.STATIC_BROKER)
    idle_ms = str(int(call.door.idle_timeout_s * 1000))
    yield _entry("connections.max.idle.ms", idle_ms, "long", "A connection without a request is closed.", Source.DEFAULT)


def _entry(name: str, value: str, kind: str, doc: str, source: Source) -> Entry:
    return Entry(
        name=name,
        value=value,
        source=source,
        type=TYPES[kind],
        doc=doc,
        is_read_only=True,
        synonyms=(Synonym(name, value, source),),
    )
