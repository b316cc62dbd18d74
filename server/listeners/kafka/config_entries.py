"""What Kafka clients are told of the keys of topics, groups and client metrics: value, where it comes from, the server's key
behind it, type, explanation.

All keys are listed that Kafka 4.3 has, those of ours, and what else a topic was configured with. The server's key behind a
topic key has the name that Kafka gives it. Source: KIP-226 (sources, synonyms), KIP-569, ServerTopicConfigSynonyms,
GroupConfig.ALL_GROUP_CONFIG_SYNONYMS, ConfigHelper (4.3.1).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ...broker import ALL_BROKERS, Broker
from ...config import KEPT_KEYS, KNOWN_KEYS, TOPIC_KEYS, LogConfig
from ...config.broker_keys import SERVER_KEYS
from ...config.client_metrics_keys import CLIENT_METRICS_KEYS
from ...config.group_keys import GROUP_KEYS

WITHOUT_SERVER_KEY: Final = frozenset({"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"})
"""All others follow a key of the server that has `group.` before the name."""


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
    """One key of a resource."""

    name: str
    value: str | None
    source: Source
    type: int
    doc: str
    is_read_only: bool
    synonyms: Sequence[Synonym]


def topic_entries(broker: Broker, name: str) -> list[Entry]:
    """Every key of a topic. Raises RequestError."""
    described = broker.topics.describe_config(name)
    return _entries(broker, {key: value for key, (value, source) in described.items() if source == "topic"})


def new_topic_entries(broker: Broker, overrides: Mapping[str, str]) -> list[Entry]:
    """Every key of a topic that would be created with these overrides."""
    return _entries(broker, overrides)


def server_synonyms(broker: Broker, key: str) -> list[Synonym]:
    """The server's key behind a topic key: as it was set for one node, for all of them, and as the server was started. Empty
    where there is none."""
    name = SERVER_KEYS.get(key)
    if name is None:
        return []
    known, overrides = KNOWN_KEYS[key], broker.broker_configs.overrides()
    nodes = sorted(overrides, key=lambda node: node == ALL_BROKERS)
    found = [(node, overrides[node][name]) for node in nodes if name in overrides[node]]
    sources = {ALL_BROKERS: Source.DYNAMIC_DEFAULT_BROKER}
    return [
        *(Synonym(name, known.write(known.read(text)), sources.get(node, Source.DYNAMIC_BROKER)) for node, text in found),
        Synonym(name, *_started_with(broker, key)),
    ]


def _entries(broker: Broker, overrides: Mapping[str, str]) -> list[Entry]:
    others = [key for key in overrides if key not in TOPIC_KEYS and key not in KEPT_KEYS]
    return [_entry(broker, key, overrides.get(key)) for key in (*TOPIC_KEYS, *KEPT_KEYS, *others)]


def _entry(broker: Broker, key: str, override: str | None) -> Entry:
    known = KNOWN_KEYS.get(key)
    synonyms = [] if override is None else [Synonym(key, override, Source.DYNAMIC_TOPIC)]
    synonyms += server_synonyms(broker, key)
    value, source = synonyms[0][1:] if synonyms else _started_with(broker, key)
    return Entry(
        name=key,
        value=value,
        source=source,
        type=UNKNOWN_TYPE if known is None else TYPES[known.type],
        doc="There is no such key: it is kept and means nothing." if known is None else known.doc,
        is_read_only=False,
        synonyms=synonyms,
    )


def _started_with(broker: Broker, key: str) -> tuple[str, Source]:
    """The value that the server was started with, and its source: the server's configuration or the default."""
    known = KNOWN_KEYS[key]
    if key not in TOPIC_KEYS:
        return known.write(known.default), Source.DEFAULT
    value = getattr(broker.broker_configs.started_with.topic_defaults, known.attribute)
    is_ours = value == getattr(LogConfig(), known.attribute)
    return known.write(value), Source.DEFAULT if is_ours else Source.STATIC_BROKER


def client_metrics_entries(broker: Broker, name: str) -> list[Entry]:
    """Every key of a subscription, whether it is there or not."""
    overrides = broker.client_metrics.overrides().get(name, {})
    return [_client_metrics_entry(key, overrides.get(key)) for key in CLIENT_METRICS_KEYS]


def _client_metrics_entry(name: str, override: str | None) -> Entry:
    key = CLIENT_METRICS_KEYS[name]
    behind = Synonym(name, key.write(key.default), Source.DEFAULT)
    value, source, synonyms = behind.value, behind.source, [behind]
    if override is not None:
        value, source = key.write(key.read(override)), Source.DYNAMIC_CLIENT_METRICS
        synonyms = [Synonym(name, value, source), behind]
    return Entry(
        name=name, value=value, source=source, type=TYPES[key.type], doc=key.doc, is_read_only=False, synonyms=synonyms
    )


def group_entries(broker: Broker, name: str) -> list[Entry]:
    """Every key of a group, whether it is there or not."""
    overrides = broker.group_configs.overrides().get(name, {})
    return [_group_entry(broker, key, overrides.get(key)) for key in GROUP_KEYS]


def _group_entry(broker: Broker, name: str, override: str | None) -> Entry:
    key, default = GROUP_KEYS[name], broker.group_configs.defaults[name]
    source = Source.DEFAULT if default == key.default else Source.STATIC_BROKER
    behind = Synonym(name if name in WITHOUT_SERVER_KEY else f"group.{name}", key.write(default), source)
    synonyms = [behind]
    value = behind.value
    if override is not None:
        value, source = key.write(key.read(override)), Source.DYNAMIC_GROUP
        synonyms = [Synonym(name, value, source), behind]
    return Entry(
        name=name, value=value, source=source, type=TYPES[key.type], doc=key.doc, is_read_only=False, synonyms=synonyms
    )
