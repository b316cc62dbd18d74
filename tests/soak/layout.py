"""What a run consists of: topics, and who does what with them. Seven families of clients, some of them twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PARTITIONS: Final = {"plain": 4, "copied": 4, "expiring": 2, "compacted": 2}
"""`plain` is fed, moved into and copied from; `copied` is what the pipes make of it; `expiring` and `compacted` are fed."""
RETENTION_MS: Final = 60_000
SEGMENTS: Final = {"segment.bytes": str(128 * 1024), "segment.index.bytes": "40960", "retention.ms": "-1"}
CONFIGURATIONS: Final[dict[str, dict[str, str]]] = {
    "plain": SEGMENTS,
    "copied": SEGMENTS,
    "expiring": {**SEGMENTS, "retention.ms": str(RETENTION_MS), "segment.ms": "20000", "file.delete.delay.ms": "1000"},
    "compacted": {
        **SEGMENTS,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.1",
        "segment.ms": "20000",
        "file.delete.delay.ms": "1000",
    },
}
LARGE: Final = {"segment.bytes": str(64 * 1024 * 1024), "segment.index.bytes": str(1024 * 1024), "retention.ms": "-1"}
SOAK: Final[dict[str, dict[str, str]]] = {**CONFIGURATIONS, "plain": LARGE, "copied": LARGE}
"""For hours: each segment has descriptors and some memory, and where none is ever deleted there are to be few. Those of the
others come and go."""
PIPES: Final = "pipes"
"""The group of the exactly-once pipes."""

Role = dict[str, Any]
FEED: Final[Role] = {"role": "feed"}
LOOK: Final[Role] = {"role": "look"}


def member(group: str, protocol: str, topic: str, *, committed: bool) -> Role:
    return {"role": "member", "group": group, "protocol": protocol, "topic": topic, "committed": committed}


def mover(transactional_id: str) -> Role:
    return {"role": "move", "transactional_id": transactional_id}


def reader(group: str, *topics: str, committed: bool) -> Role:
    return {"role": "read", "group": group, "topics": topics, "committed": committed}


def pipe(transactional_id: str, protocol: str) -> Role:
    return {
        **member(PIPES, protocol, "plain", committed=True),
        "role": "pipe",
        "transactional_id": transactional_id,
        "target": "copied",
    }


CLASSIC: Final = member("classic", "classic", "plain", committed=False)
SERVED: Final = member("served", "consumer", "copied", committed=True)
"""Of a group whose assignments the server makes (KIP-848)."""

PROCESSES: Final[Mapping[str, tuple[str, tuple[Role, ...]]]] = {
    "confluent": ("confluent", (FEED, CLASSIC, SERVED, LOOK)),
    "pipe-0": ("confluent", (pipe("pipe-0", "classic"),)),
    "pipe-1": ("confluent", (pipe("pipe-1", "classic"),)),
    "franz-go": ("franz-go", (FEED, mover("franz-go"), CLASSIC, SERVED)),
    "java": ("java", (FEED, mover("java"), SERVED, LOOK)),
    "kafka-python": ("kafka-python", (FEED, CLASSIC, LOOK)),
    "aiokafka": ("aiokafka", (FEED, mover("aiokafka"), CLASSIC)),
    "native": ("native", (FEED, mover("native"), reader("native", "plain", "expiring", committed=False), LOOK)),
    "blocking": ("blocking", (FEED, mover("blocking"), reader("blocking", "compacted", "copied", committed=True))),
}
"""Name of each process, its family and its roles."""

GROUPS: Final = {
    "classic": ("plain", False),
    "served": ("copied", True),
    PIPES: ("plain", True),
    "native": ("plain", False),
    "blocking": ("copied", True),
}
"""Groups that have to come to the end of a topic, and whether they read what is committed only."""
