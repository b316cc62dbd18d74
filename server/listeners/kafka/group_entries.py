"""What Kafka clients are told of the keys of groups: value, where it comes from, the server's key behind it, type, explanation.
Source: GroupConfig.ALL_GROUP_CONFIG_SYNONYMS (4.3.1)."""

from __future__ import annotations

from typing import Final

from ...broker import Broker
from ...config.group_keys import GROUP_KEYS
from .config_entries import TYPES, Entry, Source, Synonym

WITHOUT_SERVER_KEY: Final = frozenset({"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"})
"""All others follow a key of the server that has `group.` before the name."""


def group_entries(broker: Broker, name: str) -> list[Entry]:
    """Every key of a group, whether it is there or not."""
    overrides = broker.group_configs.overrides().get(name, {})
    return [_entry(broker, key, overrides.get(key)) for key in GROUP_KEYS]


def _entry(broker: Broker, name: str, override: str | None) -> Entry:
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
