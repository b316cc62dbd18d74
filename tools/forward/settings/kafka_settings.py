"""Settings that are passed on under their own names: librdkafka's for the connection, Kafka's for topics that are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .secrets import Secret, is_secret, read_value

OWNED: Final = frozenset(
    {
        *("bootstrap.servers", "metadata.broker.list", "client.id", "group.id", "group.instance.id", "transactional.id"),
        *("transaction.timeout.ms", "enable.idempotence", "enable.gapless.guarantee", "acks", "request.required.acks"),
        *("compression.type", "compression.codec", "enable.auto.commit", "isolation.level", "allow.auto.create.topics"),
        *("delivery.report.only.error", "queue.buffering.max.kbytes", "queue.buffering.max.messages"),
        *("retries", "message.send.max.retries", "partitioner", "group.protocol", "on_delivery", "error_cb", "logger"),
    }
)
"""What the link sets by itself."""


def kafka_settings(value: Any) -> Mapping[str, str | Secret]:
    """A table of librdkafka's settings. Raises ValueError."""
    found = {}
    for key, each in _flat(value).items():
        if key in OWNED:
            raise ValueError(f"{key} is set by the link")
        try:
            found[key] = read_value(key, each)
        except ValueError as exc:
            raise ValueError(f"{key}: {exc}") from exc
    return found


def topic_settings(value: Any) -> Mapping[str, str]:
    """A table of topic configuration. Raises ValueError."""
    return {key: str(each).lower() if isinstance(each, bool) else str(each) for key, each in _flat(value).items()}


def shown(settings: Mapping[str, str | Secret]) -> Mapping[str, str]:
    """As people may see them."""
    return {
        key: f"from {value.kind} {value.name}" if isinstance(value, Secret) else "..." if is_secret(key) else value
        for key, value in settings.items()
    }


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """TOML reads `sasl.username = "a"` as nested tables: the names are put together again."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a table")
    found: dict[str, Any] = {}
    for key, each in value.items():
        if isinstance(each, dict) and not {"file", "variable"} & set(each):
            found |= _flat(each, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = each
    return found
