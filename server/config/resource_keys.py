"""The keys of groups: those of consumer groups (KIP-848), share groups (KIP-932) and Streams groups (KIP-1071), with Kafka's
names, defaults and ranges. Source: GroupConfig, GroupCoordinatorConfig and ShareGroupConfig (4.4.0).

A value has to be in the range that the server sets for all groups, in Kafka `group.*.min.*` and `group.*.max.*`; these have
Kafka's defaults. On a lenient server any value above 0 that fits is taken: tests do not want to wait.

The keys of subscriptions to clients' metrics (KIP-714): which metrics are wanted, how often, of which clients. Source:
ClientMetricsConfigs (4.3.1), with its errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from ...protocol.errors import InvalidConfigError, InvalidRequestError, RequestError
from ...protocol.limits import INT32_MAX
from ...protocol.patterns import compiled_pattern
from .key import ConfigKey, choice, list_of, named, number, switch

KINDS: Final = ("consumer", "share", "streams")
MAX_DURATION_CHARS: Final = 64
_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{0,9}))?S)?)?", re.ASCII | re.IGNORECASE
)
_BY_DURATION: Final = "by_duration:"


@attrs.frozen
class AutoOffsetReset:
    """The place where a share group begins to read a partition: `earliest`, `latest`, or the records of the last
    `duration_ms`."""

    strategy: str
    duration_ms: int | None = None
    text: str = attrs.field(default="", eq=False)

    @classmethod
    def parse(cls, text: str) -> AutoOffsetReset:
        """`earliest`, `latest` or `by_duration:PnDTnHnMn.nS` (ISO 8601, as Java reads it). Raises ValueError."""
        said = text.strip()
        if said in ("earliest", "latest"):
            return cls(said, None, said)
        duration = said.removeprefix(_BY_DURATION)
        found = _DURATION.fullmatch(duration) if duration != said and len(said) <= MAX_DURATION_CHARS else None
        if found is None or not any(found.groups()):
            raise ValueError(f"{text!r} is not one of earliest, latest, by_duration:<PnDTnHnMn.nS>")
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[:4])
        fraction_ms = int((found[5] or "").ljust(3, "0")[:3])
        return cls("by_duration", (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms, said)

    def __str__(self) -> str:
        return self.text or self.strategy


DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
LATEST: Final = AutoOffsetReset("latest", None, "latest")
SESSION: Final = 45_000, 60_000
HEARTBEAT: Final = 5_000, 15_000
ASSIGNMENT: Final = 0, 15_000


def _followed(name: str, default: int, doc: str, *, low: int = 1, strict: tuple[int, int] | None = None) -> ConfigKey:
    """A key that follows the server's of the same name, with `group.` before it."""
    unit = "ms" if name.endswith(".ms") else ""
    return number(default, doc, low=low, high=INT32_MAX, unit=unit, strict=strict, broker_name=f"group.{name}", name=name)


def _times(kind: str, a_group: str) -> tuple[ConfigKey, ...]:
    """The keys that groups of all three kinds have."""
    return (
        _followed(
            f"{kind}.session.timeout.ms", 45_000, f"Time after which a silent member of {a_group} is removed.", strict=SESSION
        ),
        _followed(
            f"{kind}.heartbeat.interval.ms", 5_000, f"Interval of the heartbeats of members of {a_group}.", strict=HEARTBEAT
        ),
        _followed(f"{kind}.assignment.interval.ms", 1_000, "Stored. Assignments happen at once.", low=0, strict=ASSIGNMENT),
    )


def _read_dead_letter_topic(text: str) -> str:
    if text.startswith("__"):
        raise ValueError("the name of a dead-letter queue must not start with __")
    return text


GROUP_KEYS: Final[dict[str, ConfigKey]] = {
    key.name: key
    for key in (
        *_times("consumer", "a consumer group"),
        *_times("share", "a share group"),
        _followed(
            "share.record.lock.duration.ms",
            30_000,
            "Time that a record belongs to the member that it was delivered to.",
            strict=(15_000, 60_000),
        ),
        _followed(
            "share.delivery.count.limit",
            5,
            "Largest number of deliveries of a record to members of a share group.",
            strict=(2, 10),
        ),
        _followed(
            "share.partition.max.record.locks",
            2_000,
            "Records of a partition that a share group may have delivered and not acknowledged.",
            strict=(100, 4_000),
        ),
        ConfigKey(
            name="share.auto.offset.reset",
            type="string",
            default=LATEST,
            read=AutoOffsetReset.parse,
            doc="Start of reading in a partition.",
            valid="earliest, latest, by_duration:<PnDTnHnMn.nS>",
        ),
        choice(
            False,
            {"read_uncommitted": False, "read_committed": True},
            "Delivery of records of uncommitted transactions.",
            name="share.isolation.level",
        ),
        switch(True, "Permission for members to keep records for longer.", name="share.renew.acknowledge.enable"),
        ConfigKey(
            name=DEAD_LETTER_TOPIC,
            type="string",
            default="",
            read=_read_dead_letter_topic,
            doc="Dead-letter queue of a share group: topic for records that members reject or that reach the delivery limit. "
            "Empty: none.",
            valid="a topic name that does not start with __",
        ),
        switch(
            False,
            "Copies of key and value in the dead-letter queue of a share group. Without, its records have headers only.",
            name="errors.deadletterqueue.copy.record.enable",
        ),
        *_times("streams", "a Streams group"),
        _followed(
            "streams.initial.rebalance.delay.ms", 3_000, "Time that an empty Streams group waits for more members.", low=0
        ),
        _followed("streams.num.standby.replicas", 0, "Standby tasks for each task with state.", low=0, strict=(0, 2)),
    )
}

GroupConfig = Mapping[str, Any]
"""The value of every key of `GROUP_KEYS`."""


def default_group_config(server: object, *, lenient: bool) -> GroupConfig:
    """The configuration of all groups that say nothing themselves. `server`: has fields for those keys of the server that it
    knows; the others have their defaults. A server that is not lenient asks for no more heartbeats than Kafka's."""
    values = {name: getattr(server, key.broker_name.replace(".", "_"), key.default) for name, key in GROUP_KEYS.items()}
    if not lenient:
        for kind in KINDS:
            values[f"{kind}.heartbeat.interval.ms"] = max(values[f"{kind}.heartbeat.interval.ms"], HEARTBEAT[0])
    return values


def group_config(defaults: GroupConfig, overrides: Mapping[str, str], *, lenient: bool) -> GroupConfig:
    """A group's configuration. Raises InvalidConfigError naming the key, the value and what would be valid."""
    values = dict(defaults)
    for name, text in overrides.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise InvalidConfigError(f"Unknown group config name: {name}")
        values[name] = value = key.parse("group", text.strip() if key.type == "boolean" else text)
        if key.strict is not None and not lenient and not key.strict[0] <= value <= key.strict[1]:
            low, high = key.strict
            raise InvalidConfigError(f"group configuration {name}={text!r}: {value} is not in {low}..{high}")
    for kind in KINDS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if (session in overrides or heartbeat in overrides) and values[session] <= values[heartbeat]:
            raise InvalidConfigError(f"{session}={values[session]} is not above {heartbeat}={values[heartbeat]}")
    return values


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
        INTERVAL_MS: number(
            DEFAULT_INTERVAL_MS, "Interval at which a client sends its metrics.", low=-INT32_MAX - 1, high=INT32_MAX
        ),
        MATCH: list_of(
            _parts,
            (),
            "Clients of the subscription: each part must match the expression. An empty value means all.",
            f"PART=EXPRESSION with {', '.join(MATCHED)}",
        ),
        METRICS: list_of(
            _parts, (), "Prefixes of the names of the metrics; * is all, an empty value is none.", "beginnings of names"
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
