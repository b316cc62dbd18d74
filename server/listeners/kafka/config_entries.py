"""What Kafka clients are told of topic keys: value, where it comes from, the server's key behind it, type, explanation.

All keys are listed that Kafka 4.3 has, those of ours, and what else a topic was configured with. The server's key behind a
topic key has the name that Kafka gives it. Source: KIP-226 (sources, synonyms), KIP-569, ServerTopicConfigSynonyms.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ...broker import Broker
from ...config import KEPT_KEYS, KNOWN_KEYS, TOPIC_KEYS, LogConfig


class Source(enum.IntEnum):
    """Kafka's ConfigSource."""

    DYNAMIC_TOPIC = 1
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


SERVER_KEYS: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""What a topic key follows as long as the topic does not say otherwise."""


def topic_entries(broker: Broker, name: str) -> list[Entry]:
    """Every key of a topic. Raises RequestError."""
    described = broker.topics.describe_config(name)
    return _entries(broker, {key: value for key, (value, source) in described.items() if source == "topic"})


def new_topic_entries(broker: Broker, overrides: Mapping[str, str]) -> list[Entry]:
    """Every key of a topic that would be created with these overrides."""
    return _entries(broker, overrides)


def server_synonym(broker: Broker, key: str) -> Synonym | None:
    """The server's key behind a topic key, and its value; None where there is none."""
    name = SERVER_KEYS.get(key)
    if name is None:
        return None
    value, source = _default(broker, key)
    return Synonym(name, value, source)


def _entries(broker: Broker, overrides: Mapping[str, str]) -> list[Entry]:
    others = [key for key in overrides if key not in TOPIC_KEYS and key not in KEPT_KEYS]
    return [_entry(broker, key, overrides.get(key)) for key in (*TOPIC_KEYS, *KEPT_KEYS, *others)]


def _entry(broker: Broker, key: str, override: str | None) -> Entry:
    known = KNOWN_KEYS.get(key)
    synonyms = [] if override is None else [Synonym(key, override, Source.DYNAMIC_TOPIC)]
    behind = server_synonym(broker, key)
    if behind is not None:
        synonyms.append(behind)
    value, source = (override, Source.DYNAMIC_TOPIC) if override is not None else _default(broker, key)
    return Entry(
        name=key,
        value=value,
        source=source,
        type=UNKNOWN_TYPE if known is None else TYPES[known.type],
        doc="There is no such key: it is kept and means nothing." if known is None else known.doc,
        is_read_only=False,
        synonyms=synonyms,
    )


def _default(broker: Broker, key: str) -> tuple[str, Source]:
    """The value for topics that do not override a key, and its source: the server's configuration or the default."""
    known = KNOWN_KEYS[key]
    if key not in TOPIC_KEYS:
        return known.write(known.default), Source.DEFAULT
    value = getattr(broker.config.topic_defaults, known.attribute)
    is_ours = value == getattr(LogConfig(), known.attribute)
    return known.write(value), Source.DEFAULT if is_ours else Source.STATIC_BROKER
