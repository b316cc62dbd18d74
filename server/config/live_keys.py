"""Live keys: keys of the server that may change while it runs, and the differences between two configurations."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import attrs

from .broker_config import BROKER_KEYS, BrokerConfig
from .key import as_text
from .log_config import TOPIC_KEYS

LIVE_KEYS: Final = frozenset(name for name, key in BROKER_KEYS.items() if key.live)
"""The server reads them where it uses them, or a part of the server adopts them. Those of TLS hold for new connections."""


class Difference(NamedTuple):
    """A key that has another value now. No key of the server holds a secret: they name files."""

    name: str
    old: str
    new: str

    @property
    def is_live(self) -> bool:
        return self.name in LIVE_KEYS

    def __str__(self) -> str:
        return f"{self.name}: {self.old} -> {self.new}"


def differences(old: BrokerConfig, new: BrokerConfig) -> list[Difference]:
    """Every key with another value, topic defaults under their own names."""
    found = [
        Difference(name, _shown(getattr(old, name)), _shown(getattr(new, name)))
        for name in BROKER_KEYS
        if hasattr(old, name) and getattr(old, name) != getattr(new, name)
    ]
    for name, key in TOPIC_KEYS.items():
        was, will_be = (getattr(config.topic_defaults, key.attribute) for config in (old, new))
        if was != will_be:
            found.append(Difference(f"topic_defaults {name}", key.write(was), key.write(will_be)))
    return found


def with_live_keys(old: BrokerConfig, new: BrokerConfig) -> BrokerConfig:
    """`old` with what `new` says of LIVE_KEYS."""
    return attrs.evolve(old, **{name: getattr(new, name) for name in LIVE_KEYS})


def _shown(value: Any) -> str:
    return as_text(value, nothing="not set", empty="none")
