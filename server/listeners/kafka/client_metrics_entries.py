"""What Kafka clients are told of the keys of subscriptions to clients' metrics. Source: ConfigHelper (4.3.1)."""

from __future__ import annotations

from ...broker import Broker
from ...config.client_metrics_keys import CLIENT_METRICS_KEYS
from .config_entries import TYPES, Entry, Source, Synonym


def client_metrics_entries(broker: Broker, name: str) -> list[Entry]:
    """Every key of a subscription, whether it is there or not."""
    overrides = broker.client_metrics.overrides().get(name, {})
    return [_entry(key, overrides.get(key)) for key in CLIENT_METRICS_KEYS]


def _entry(name: str, override: str | None) -> Entry:
    key = CLIENT_METRICS_KEYS[name]
    behind = Synonym(name, key.write(key.default), Source.DEFAULT)
    value, source, synonyms = behind.value, behind.source, [behind]
    if override is not None:
        value, source = key.write(key.read(override)), Source.DYNAMIC_CLIENT_METRICS
        synonyms = [Synonym(name, value, source), behind]
    return Entry(
        name=name, value=value, source=source, type=TYPES[key.type], doc=key.doc, is_read_only=False, synonyms=synonyms
    )
