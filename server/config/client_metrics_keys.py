"""The keys of subscriptions to clients' metrics (KIP-714): which metrics are wanted, how often, of which clients. Source:
ClientMetricsConfigs (4.3.1), with its errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from ...protocol.errors import InvalidConfigError, InvalidRequestError, RequestError
from ...protocol.limits import INT32_MAX
from ...protocol.patterns import compiled_pattern
from .key import list_of, named, number

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
ALL_METRICS: Final = "*"
MIN_INTERVAL_MS: Final = 100
MAX_INTERVAL_MS: Final = 3_600_000
DEFAULT_INTERVAL_MS: Final = 300_000
MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a client may be chosen by."""
MAX_PATTERN_CHARS: Final = 255
"""Of one expression: they are looked at for each client."""


def _parts(text: str) -> tuple[str, ...]:
    """Each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text.strip() else ()


CLIENT_METRICS_KEYS: Final = named(
    {
        INTERVAL_MS: number(DEFAULT_INTERVAL_MS, "How often a client sends its metrics.", low=-INT32_MAX - 1, high=INT32_MAX),
        MATCH: list_of(
            _parts,
            (),
            "Of which clients: each part of theirs has to match the expression; nothing is all of them.",
            f"PART=EXPRESSION with {', '.join(MATCHED)}",
        ),
        METRICS: list_of(
            _parts, (), "How the names of the metrics begin that are wanted; * is all, nothing is none.", "beginnings of names"
        ),
    }
)


@attrs.frozen(kw_only=True)
class Subscription:
    """A subscription to client metrics: the metrics, the clients, and the interval."""

    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, Callable[[str], bool]]
    """Part of a client -> whether it fits."""

    def matches(self, client: Mapping[str, str]) -> bool:
        """Return whether the subscription applies to a client with these parts."""
        return all(fits(client.get(part, "")) for part, fits in self.match.items())


def subscription(overrides: Mapping[str, str]) -> Subscription:
    """Raises InvalidRequestError, InvalidConfigError."""
    if unknown := [name for name in overrides if name not in CLIENT_METRICS_KEYS]:
        raise InvalidRequestError(f"Unknown client metrics configuration: {unknown[0]}")
    values = {name: key.default for name, key in CLIENT_METRICS_KEYS.items()}
    values |= {name: CLIENT_METRICS_KEYS[name].parse("client metrics", text) for name, text in overrides.items()}
    for name in (METRICS, MATCH):
        if "" in values[name]:
            raise InvalidConfigError(f"Configuration {name!r} values must not be empty.")
    interval_ms: int = values[INTERVAL_MS]
    if not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        raise InvalidRequestError(
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between 100 and 3600000 (1 hour)"
        )
    return Subscription(metrics=frozenset(values[METRICS]), interval_ms=interval_ms, match=dict(map(_pattern, values[MATCH])))


def _pattern(text: str) -> tuple[str, Callable[[str], bool]]:
    part, found, expression = (each.strip() for each in text.partition("="))
    if not found or part not in MATCHED or "=" in expression or not expression or len(expression) > MAX_PATTERN_CHARS:
        raise InvalidConfigError(f"Illegal client matching pattern: {text}")
    try:
        return part, compiled_pattern(expression)
    except RequestError as exc:
        raise InvalidConfigError(f"Illegal client matching pattern: {text}: {exc.message}") from exc
