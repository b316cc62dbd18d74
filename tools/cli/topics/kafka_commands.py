"""The commands of Apache Kafka that create our topics there: `kafka-topics.sh --create`, ready for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ....server.storage.directory.topics_file import Topic

KAFKA_TOPIC_KEYS: Final = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""Topic keys that Kafka 4.3 has; the others are ours, an older Kafka's or nobody's."""

KAFKA_SMALLEST: Final[Mapping[str, int]] = {"segment.bytes": 1_048_576}
"""Kafka 4.3's smallest values, where ours are smaller."""


def create_topic_commands(topics: Iterable[Topic], bootstrap_server: str, configs: Mapping[str, str]) -> Iterator[str]:
    """A line for each topic, and before it a comment for each key that Kafka does not take as it is. `configs` are laid over
    every topic's own."""
    for topic in topics:
        words = ["kafka-topics.sh", "--bootstrap-server", bootstrap_server, "--create", "--topic", topic.name]
        words += ["--partitions", str(topic.partitions), "--replication-factor", "1"]
        for key, value in sorted({**topic.configs, **configs}.items()):
            if key not in KAFKA_TOPIC_KEYS:
                yield f"# {topic.name}: {key}={value} is left out, Kafka 4.3 has no such key"
                continue
            smallest = KAFKA_SMALLEST.get(key)
            if smallest is not None and int(value) < smallest:
                yield f"# {topic.name}: {key}={value} is raised to {smallest}, the smallest that Kafka takes"
                value = str(smallest)
            words += ["--config", f"{key}={value}"]
        yield shlex.join(words)
