"""Entries of DescribeConfigs for topics, brokers, groups and subscriptions: value, source, synonyms, type and documentation.

A topic lists every key of Kafka 4.3, every key of ours, and any other key that it overrides. A broker lists the keys that
Kafka has a name for. Clients can change a broker's key while it runs if topics follow it; the other keys come from the file,
the environment and the command line. Source: ConfigHelper (4.3.1), KafkaConfig, KIP-226 (sources, synonyms), KIP-569.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ...broker import ALL_BROKERS, Broker
from ...config import KEPT_KEYS, KNOWN_KEYS, TOPIC_KEYS, ConfigKey, LogConfig
from ...config.broker_config import BROKER_KEYS, BrokerConfig
from ...config.log_config import FOLLOWED_KEYS
from ...config.resource_keys import CLIENT_METRICS_KEYS, GROUP_KEYS
from .door import Call

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


class Source(enum.IntEnum):
    """Kafka's ConfigSource."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


TYPES: Final = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7}
"""Kafka's ConfigType."""
UNKNOWN_TYPE: Final = 0


class Synonym(NamedTuple):
    """A key that a value can come from, in the order in which they count."""

    name: str
    value: str
    source: Source


class Entry(NamedTuple):
    """A key of a resource."""

    name: str
    value: str | None
    source: Source
    type: int
    doc: str
    synonyms: Sequence[Synonym]
    is_read_only: bool = False


# ---- topics ----------------------------------------------------------------------------------------------------------------


def topic_entries(broker: Broker, name: str) -> list[Entry]:
    """Every key of a topic. Raises RequestError."""
    described = broker.topics.describe_config(name)
    return new_topic_entries(broker, {key: value for key, (value, source) in described.items() if source == "topic"})


def new_topic_entries(broker: Broker, overrides: Mapping[str, str]) -> list[Entry]:
    """Every key of a topic that would be created with these overrides."""
    others = [key for key in overrides if key not in TOPIC_KEYS and key not in KEPT_KEYS]
    return [_topic_entry(broker, key, overrides.get(key)) for key in (*TOPIC_KEYS, *KEPT_KEYS, *others)]


def _topic_entry(broker: Broker, name: str, override: str | None) -> Entry:
    synonyms = [] if override is None else [Synonym(name, override, Source.DYNAMIC_TOPIC)]
    key = KNOWN_KEYS.get(name)
    if key is None:
        doc = "Unknown key, stored without effect."
        return Entry(name, override, Source.DYNAMIC_TOPIC, UNKNOWN_TYPE, doc, synonyms)
    synonyms += _followed(broker, key)
    value, source = synonyms[0][1:] if synonyms else _started_with(broker, key)
    return Entry(name, value, source, TYPES[key.type], key.doc, synonyms)


def _followed(broker: Broker, key: ConfigKey) -> list[Synonym]:
    """The broker's key behind a topic key: as it was set for one node, for all of them, and as the server was started. Empty
    where there is none."""
    name = key.broker_name
    if not name:
        return []
    overrides = broker.broker_configs.overrides()
    nodes = sorted(overrides, key=lambda node: node == ALL_BROKERS)
    found = [(node, overrides[node][name]) for node in nodes if name in overrides[node]]
    sources = {ALL_BROKERS: Source.DYNAMIC_DEFAULT_BROKER}
    return [
        *(Synonym(name, key.write(key.read(text)), sources.get(node, Source.DYNAMIC_BROKER)) for node, text in found),
        Synonym(name, *_started_with(broker, key)),
    ]


def _started_with(broker: Broker, key: ConfigKey) -> tuple[str, Source]:
    """The value that the server was started with, and its source: the server's configuration or the default."""
    if key.name not in TOPIC_KEYS:
        return key.write(key.default), Source.DEFAULT
    value = getattr(broker.broker_configs.started_with.topic_defaults, key.attribute)
    is_ours = value == getattr(LogConfig(), key.attribute)
    return key.write(value), Source.DEFAULT if is_ours else Source.STATIC_BROKER


# ---- groups, subscriptions -------------------------------------------------------------------------------------------------


def group_entries(broker: Broker, name: str) -> list[Entry]:
    """Every key of a group, whether it is there or not."""
    configs = broker.group_configs
    overrides = configs.overrides().get(name, {})
    return [_entry(key, overrides, configs.defaults[key.name], Source.DYNAMIC_GROUP) for key in GROUP_KEYS.values()]


def client_metrics_entries(broker: Broker, name: str) -> list[Entry]:
    """Every key of a subscription, whether it is there or not."""
    overrides = broker.client_metrics.overrides().get(name, {})
    return [_entry(key, overrides, key.default, Source.DYNAMIC_CLIENT_METRICS) for key in CLIENT_METRICS_KEYS.values()]


def _entry(key: ConfigKey, overrides: Mapping[str, str], default: object, dynamic: Source) -> Entry:
    source = Source.DEFAULT if default == key.default else Source.STATIC_BROKER
    synonyms = [Synonym(key.broker_name or key.name, key.write(default), source)]
    if key.name in overrides:
        synonyms.insert(0, Synonym(key.name, key.write(key.read(overrides[key.name])), dynamic))
    _, value, source = synonyms[0]
    return Entry(key.name, value, source, TYPES[key.type], key.doc, synonyms)


# ---- brokers ---------------------------------------------------------------------------------------------------------------

ONE_REPLICA: Final = "Everything has one replica."
FIXED: Final = {
    "default.replication.factor": ("1", "int", ONE_REPLICA),
    "offsets.topic.replication.factor": ("1", "short", ONE_REPLICA),
    "transaction.state.log.replication.factor": ("1", "short", ONE_REPLICA),
    "transaction.state.log.min.isr": ("1", "int", ONE_REPLICA),
    "delete.topic.enable": ("true", "boolean", "Topics can be deleted."),
    "auto.leader.rebalance.enable": ("false", "boolean", "A partition has one replica, its leader."),
    "process.roles": ("broker,controller", "list", "One node is everything."),
    "remote.log.storage.system.enable": ("false", "boolean", "Tiered storage is not supported."),
}
"""Kafka's key -> value, type, explanation: what cannot be configured here and is so."""


def broker_entries(call: Call) -> Iterator[Entry]:
    """Every key of a broker."""
    yield from _identity(call)
    for key in FOLLOWED_KEYS.values():
        yield _broker_entry(key, _followed(call.broker, key))
    for topic_key, hours in (("retention.ms", "log.retention.hours"), ("segment.ms", "log.roll.hours")):
        synonym = _followed(call.broker, TOPIC_KEYS[topic_key])[-1]
        rounded = str(int(synonym.value) // HOUR_MS) if int(synonym.value) >= 0 else "-1"
        yield _fixed(hours, rounded, "int", f"{synonym.name} applies. This is the same in whole hours.", synonym.source)
    defaults = BrokerConfig(data_dirs=())
    for key in BROKER_KEYS.values():
        if key.broker_name:
            value = getattr(call.broker.config, key.attribute)
            source = Source.DEFAULT if value == getattr(defaults, key.attribute) else Source.STATIC_BROKER
            told = value // MINUTE_MS if key.broker_name.endswith(".minutes") else value
            yield _fixed(key.broker_name, key.write(told), key.type, key.doc, source)
    for name, (text, kind, doc) in FIXED.items():
        yield _fixed(name, text, kind, doc, Source.DEFAULT)


def entries_of_all_brokers(call: Call) -> Iterator[Entry]:
    """Yield the entries that were set for all brokers while they run."""
    for name in call.broker.broker_configs.overrides().get(ALL_BROKERS, {}):
        synonyms = _followed(call.broker, FOLLOWED_KEYS[name])
        yield _broker_entry(FOLLOWED_KEYS[name], [each for each in synonyms if each.source is Source.DYNAMIC_DEFAULT_BROKER])


def _broker_entry(key: ConfigKey, synonyms: list[Synonym]) -> Entry:
    """Of what can be set while the server runs."""
    return Entry(*synonyms[0], TYPES[key.type], key.doc, synonyms)


def _identity(call: Call) -> Iterator[Entry]:
    node = next(node for node in call.door.nodes(call.session) if node.node_id == call.door.node_id)
    host = f"[{node.host}]" if ":" in node.host else node.host
    config, listener = call.broker.config, f"{call.broker.config.kafka_security.name}://{host}:{node.port}"
    mechanisms = ",".join(config.sasl_enabled_mechanisms) if config.kafka_security.has_sasl else ""
    for name in ("node.id", "broker.id"):
        yield _fixed(name, str(node.node_id), "int", "Identity of the node.", Source.STATIC_BROKER)
    for name in ("listeners", "advertised.listeners"):
        yield _fixed(name, listener, "string", "Addresses that Kafka clients get.", Source.STATIC_BROKER)
    yield _fixed("sasl.enabled.mechanisms", mechanisms, "list", "Login mechanisms.", Source.STATIC_BROKER)
    idle_ms = str(int(call.door.idle_timeout_s * 1000))
    yield _fixed("connections.max.idle.ms", idle_ms, "long", "A connection without a request is closed.", Source.DEFAULT)


def _fixed(name: str, value: str, kind: str, doc: str, source: Source) -> Entry:
    """Of what cannot be set while the server runs."""
    return Entry(name, value, source, TYPES[kind], doc, (Synonym(name, value, source),), is_read_only=True)
