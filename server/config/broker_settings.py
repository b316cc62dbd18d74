"""The sources of the server's configuration: a TOML file, `TRIOLOG_*` variables and the command line, in rising precedence.

Unknown keys are refused by name. The table `topic_defaults` holds topic keys that apply to all topics.

Live keys: keys of the server that may change while it runs, and the differences between two configurations.

Exposure: listeners that peers on other machines can reach without identifying themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import attrs

from ...protocol.errors import InvalidConfigError
from .broker_config import BROKER_KEYS, BrokerConfig
from .key import as_text
from .listener_security import ClientAuth, ListenerSecurity
from .log_config import TOPIC_KEYS, LogConfig
from .values import Address, Durability
from .values import is_loopback as is_loopback

VARIABLE_PREFIX: Final = "TRIOLOG_"
OTHER_VARIABLES: Final = frozenset(
    {
        *("TRIOLOG_TEST", "TRIOLOG_SERVER", "TRIOLOG_TLS", "TRIOLOG_TLS_CA", "TRIOLOG_TLS_CERT", "TRIOLOG_FORWARD_DIR"),
        *("TRIOLOG_USER", "TRIOLOG_PASSWORD", "TRIOLOG_PASSWORD_FILE", "TRIOLOG_INGEST_DIR", "TRIOLOG_MIRROR_DIR"),
    }
)
"""Variables of that prefix that are not the server's: the size of the test suite, settings of clients, the place of links."""
LINK_TABLES: Final = ("forward", "forward_process", "ingest", "ingest_process", "mirror")
"""Links, which `triolog forward`, `triolog ingest` and the mirrors read and check."""


def read_settings(file: str | None, environment: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for BrokerConfig from a TOML file, variables and arguments; later ones win.

    Raises InvalidConfigError naming the source, the key and what would be valid; OSError when the file cannot be read.
    """
    values: dict[str, Any] = {}
    topic_defaults: dict[str, str] = {}
    if file is not None:
        document = _load_toml(file)
        topic_defaults = _topic_table(f"{file} [topic_defaults]", document.pop("topic_defaults", {}))
        for table in LINK_TABLES:
            document.pop(table, None)
        values |= _read_all(file, document)
    variables = {
        name: text
        for name, text in environment.items()
        if name.startswith(VARIABLE_PREFIX) and name not in OTHER_VARIABLES and not name.startswith("TRIOLOG_TEST_")
    }
    named = {name.removeprefix(VARIABLE_PREFIX).lower(): text for name, text in variables.items()}
    values |= _read_all("the environment", named)
    values |= _read_all("the command line", {key: value for key, value in arguments.items() if value is not None})
    return _with_topic_defaults(values, f"{file} [topic_defaults]", topic_defaults)


def read_given(source: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The same from a mapping, which says what a file would: the server's keys, and the table `topic_defaults`. Raises
    InvalidConfigError naming the source, the key and what would be valid."""
    values = dict(given)
    table = _topic_table(f"{source} topic_defaults", values.pop("topic_defaults", {}))
    return _with_topic_defaults(_read_all(source, values), f"{source} topic_defaults", table)


def read_topic_configs(file: str) -> dict[str, dict[str, str]]:
    """The tables `[topic.NAME]` of a TOML file: configuration of partition directories that are adopted."""
    document = _load_toml(file)
    tables = document.pop("topic", {})
    if document or not isinstance(tables, dict):
        raise InvalidConfigError(f"{file} holds {', '.join(document) or 'topic'}. Only tables [topic.NAME] were expected")
    configs = {str(name): _topic_table(f"{file} [topic.{name}]", table) for name, table in tables.items()}
    for name, config in configs.items():
        _overlaid(f"{file} [topic.{name}]", LogConfig(), config)
    return configs


def _load_toml(file: str) -> dict[str, Any]:
    import tomllib  # an embedded broker starts without it

    try:
        with open(file, "rb") as stream:
            return tomllib.load(stream)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidConfigError(f"{file} is not TOML: {exc}") from exc


def _with_topic_defaults(values: dict[str, Any], source: str, table: Mapping[str, str]) -> dict[str, Any]:
    durability = values.pop("durability", Durability.parse("fsync"))
    return {**values, "topic_defaults": _overlaid(source, attrs.evolve(LogConfig(), durability=durability), table)}


def _overlaid(source: str, config: LogConfig, table: Mapping[str, str]) -> LogConfig:
    """Raises InvalidConfigError naming the source."""
    try:
        return config.overlay(table)
    except InvalidConfigError as exc:
        raise InvalidConfigError(f"{source}: {exc.message}") from exc


def _topic_table(source: str, table: Any) -> dict[str, str]:
    if not isinstance(table, dict):
        raise InvalidConfigError(f'{source}: topic configuration is a table of keys, such as "retention.ms" = -1')
    flat = dict(_flatten("", table))
    unknown = sorted(set(flat) - set(TOPIC_KEYS))
    if unknown:
        raise InvalidConfigError(f"{source}: unknown topic configuration key {unknown[0]!r}")
    return flat


def _flatten(prefix: str, table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """TOML reads `retention.ms = -1` as nested tables: put the names together again."""
    pairs: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            pairs += _flatten(f"{prefix}{key}.", value)
        else:
            pairs.append((f"{prefix}{key}", str(value).lower() if isinstance(value, bool) else str(value)))
    return pairs


def _read_all(source: str, values: Mapping[str, Any]) -> dict[str, Any]:
    read = {}
    for name, value in values.items():
        key = BROKER_KEYS.get(name)
        if key is None:
            from difflib import get_close_matches

            near = get_close_matches(name, [*BROKER_KEYS, "topic_defaults"], 1)
            hint = f"Did you mean {near[0]}?" if near else "`triolog config show` lists the keys"
            raise InvalidConfigError(f"{source}: unknown key {name!r}. {hint}")
        try:
            read[name] = key.read(value)
        except ValueError as exc:
            raise InvalidConfigError(f"{source}: {name}: {exc}") from exc
    return read


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


NATIVE: Final = "native"
KAFKA: Final = "kafka"
METRICS: Final = "metrics"
HTTP: Final = "http"
REGISTRY: Final = "schema_registry"
"""Names of listeners, as keys of the configuration have them."""
_REMEDIES: Final = {
    NATIVE: "require a login (native_security) or a client certificate (native_ssl_client_auth)",
    KAFKA: "require a login (kafka_security) or a client certificate (kafka_ssl_client_auth)",
    METRICS: "require a token with metrics_token_file",
    HTTP: "require a login (http_security)",
    REGISTRY: "require a login without TLS (kafka_security = sasl_plaintext), or put a proxy with TLS before it",
}


def exposed(config: BrokerConfig, addresses: Mapping[str, Address | None]) -> tuple[str, ...]:
    """Return the names of those listeners that every peer that reaches the machine may use."""
    asks = {
        NATIVE: _asks_who_it_is(config, config.native_security, config.native_ssl_client_auth),
        KAFKA: _asks_who_it_is(config, config.kafka_security, config.kafka_ssl_client_auth),
        METRICS: config.metrics_token_file is not None,
        HTTP: _asks_who_it_is(config, config.http_security, ClientAuth.NONE),
        REGISTRY: _has_registry_logins(config),
    }
    found = {name: address for name, address in addresses.items() if address is not None and not asks[name]}
    return tuple(name for name, address in found.items() if not is_loopback(address.host))


def _asks_who_it_is(config: BrokerConfig, security: ListenerSecurity, client_auth: ClientAuth) -> bool:
    """Unsecured tokens say nothing about a client."""
    if security.has_tls and client_auth is ClientAuth.REQUIRED:
        return True
    return security.has_sasl and not config.sasl_oauthbearer_unsecured_tokens


def registry_needs_login(config: BrokerConfig) -> bool:
    """Return whether requests to the schema registry need a user: another listener has logins."""
    return any(each.has_sasl for each in (config.kafka_security, config.native_security, config.http_security))


def _has_registry_logins(config: BrokerConfig) -> bool:
    """Return whether the registry may send passwords as they are: it requires a login, and no other listener encrypts."""
    listeners = config.kafka_security, config.native_security, config.http_security
    return registry_needs_login(config) and not any(each.has_tls for each in listeners)


def check_exposure(config: BrokerConfig, addresses: Mapping[str, Address | None]) -> tuple[str, ...]:
    """The same. Raises InvalidConfigError where it is not wanted."""
    found = exposed(config, addresses)
    if found and not config.insecure:
        listeners = ", ".join(f"{name} {addresses[name]}" for name in found)
        raise InvalidConfigError(
            f"{listeners}: other machines can reach these listeners, and everything is allowed there without a "
            f"login. Listen on 127.0.0.1, or: {'; '.join(_REMEDIES[name] for name in found)}. To allow it, use "
            "--insecure (insecure = true)"
        )
    return found
