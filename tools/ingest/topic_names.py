"""Names of topics that ingest may write to."""

from __future__ import annotations

from ...protocol.errors import RequestError
from ...protocol.types import SCHEMAS_TOPIC
from ...server.storage.disk.paths import check_topic_name, is_internal


def check_name(topic: str) -> str:
    """Return a topic that records may go to: a device that chooses it cannot reach the state of the server or of its schema
    registry. Raises ValueError."""
    try:
        check_topic_name(topic)
    except RequestError as exc:
        raise ValueError(exc.message) from exc
    if is_internal(topic) or topic == SCHEMAS_TOPIC:
        raise ValueError(f"{topic} is a topic of the server itself")
    return topic
