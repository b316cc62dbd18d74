"""Which configuration of the server's own topics may be changed: keys that decide how their files are cut, cleaned and synced,
and none that decides which records are accepted or kept. Committed offsets and transactions are in these topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.limits import MIB

INTERNAL_KEYS: Final = frozenset(
    {
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "internal.segment.bytes",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "segment.bytes",
    }
)
MIN_SEGMENT_BYTES: Final = MIB
"""Of such a topic: each segment costs three files. Tests that need smaller ones have `internal.segment.bytes`, as in Kafka."""


def check_internal_change(topic: str, before: Mapping[str, str], after: Mapping[str, str], usual: Mapping[str, str]) -> None:
    """Raises RequestError when a change of a topic of the server's own is not one that may be. `usual`: what such a topic is
    made with; a change back to that, or to the server's default where that says nothing, always may."""
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    refused = [key for key in changed if key not in INTERNAL_KEYS and after.get(key) != usual.get(key)]
    if refused:
        raise RequestError(
            f"topic {topic!r} is the server's own: {', '.join(refused)} cannot be changed; "
            f"{', '.join(sorted(INTERNAL_KEYS))} can",
            ErrorCode.POLICY_VIOLATION,
        )
    segment_bytes = after.get("segment.bytes", "")
    if "segment.bytes" in changed and segment_bytes.isdecimal() and int(segment_bytes) < MIN_SEGMENT_BYTES:
        raise RequestError(
            f"topic {topic!r} is the server's own: its segment.bytes is at least {MIN_SEGMENT_BYTES}",
            ErrorCode.POLICY_VIOLATION,
        )
