"""Which keys of the server may change while it runs, and how two configurations differ."""

from __future__ import annotations

import enum
from typing import Any, Final, NamedTuple

import attrs

from ..config import TOPIC_KEYS
from .broker_config import BROKER_KEYS, BrokerConfig

TLS_KEYS: Final = frozenset(
    {
        *("ssl_certificate_file", "ssl_key_file", "ssl_client_ca_file", "ssl_handshake_timeout_ms"),
        *("native_ssl_client_auth", "kafka_ssl_client_auth"),
    }
)
"""Of new connections."""

LIVE_KEYS: Final = TLS_KEYS | {
    *("log_level", "log_lines_per_minute"),
    *("sasl_users_file", "super_users", "allow_everyone_if_no_acl_found"),
    *("connections_max_reauth_ms", "connection_failed_authentication_delay_ms"),
    *("auto_create_topics_enable", "num_partitions"),
    *("max_lease_ms", "max_staged_bytes", "stage_retention_ms", "stage_commit_expiration_ms"),
    *("cleaner_dedupe_buffer_bytes", "cleaner_io_max_bytes_per_second"),
    *("stop_grace_ms", "stop_timeout_ms"),
}
"""Those that are looked up where they are used, or taken over by a part of the server."""


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
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, tuple | frozenset) and not hasattr(value, "_fields"):
        return ",".join(map(str, sorted(value) if isinstance(value, frozenset) else value)) or "none"
    return str(value)
