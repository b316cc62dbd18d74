"""Kafka's names of the server's keys that topics follow, and of those that can be set while it runs. Source:
ServerTopicConfigSynonyms, DynamicBrokerConfig (4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...protocol.errors import InvalidRequestError

SERVER_KEYS: Final[Mapping[str, str]] = {
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

LIVE_SERVER_KEYS: Final[Mapping[str, str]] = {server: topic for topic, server in SERVER_KEYS.items()}
"""The server's keys that can be set while it runs, and the topic keys that follow them."""


def topic_defaults_of(overrides: Mapping[str, str]) -> dict[str, str]:
    """Topic keys and values, of the server's keys that were set while it runs. Raises InvalidRequestError for others."""
    if fixed := sorted(overrides.keys() - LIVE_SERVER_KEYS.keys()):
        raise InvalidRequestError(
            f"{', '.join(fixed)}: not to be set while the server runs; change its file or its environment and start it again"
        )
    return {LIVE_SERVER_KEYS[name]: value for name, value in overrides.items()}
