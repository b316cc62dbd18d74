"""Records that are too old to stay: written, acknowledged, and deleted when the server next looks at retention.

Retention by time goes by the timestamps of records, so importing old data into a topic with the default retention loses it
without an error (Kafka does the same). Whoever loads data asks a `RetentionWatch` about the times as they come.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....protocol.native.messages import ConfigEntry

DAY_MS = 86_400_000


class RetentionWatch:
    """Compares timestamps with what a topic keeps. Owner: whoever sends the records."""

    __slots__ = ("_oldest_ms", "_retention_ms", "_topic")

    def __init__(self, topic: str, config: Mapping[str, ConfigEntry], now_ms: int) -> None:
        """`config` is the topic's configuration, as `Admin.describe_config` gives it."""
        values = {key: entry.value for key, entry in config.items()}
        self._topic = topic
        self._retention_ms = int(values.get("retention.ms", -1))
        deletes = "delete" in values.get("cleanup.policy", "delete")
        by_record = values.get("message.timestamp.type", "CreateTime") == "CreateTime"
        watches = self._retention_ms >= 0 and deletes and by_record
        self._oldest_ms = now_ms - self._retention_ms if watches else 0

    def is_too_old(self, timestamp_ms: int | None) -> bool:
        """Return whether retention would delete a record with this timestamp; one without gets the time of its append."""
        return timestamp_ms is not None and timestamp_ms < self._oldest_ms

    def warning(self, timestamp: str) -> str:
        """Return a warning that retention will delete records of that time, with the ways to keep them."""
        return (
            f"records of {timestamp} are older than topic {self._topic} keeps any "
            f"(retention.ms={self._retention_ms}, {self._retention_ms / DAY_MS:g} days): the server will delete "
            f"them. To keep them: `triolog topics alter {self._topic} --config retention.ms=-1`, or create the "
            "topic with retention.ms=-1. Or let their age count from now: message.timestamp.type=LogAppendTime"
        )
