"""The keys of groups: those of consumer groups (KIP-848), share groups (KIP-932) and Streams groups (KIP-1071), with Kafka's
names, defaults and ranges. Source: GroupConfig, GroupCoordinatorConfig and ShareGroupConfig (4.3.1).

A value has to be in the range that the server sets for all groups, in Kafka `group.*.min.*` and `group.*.max.*`; these have
Kafka's defaults. On a lenient server any value above 0 that fits is taken: tests do not want to wait.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from ...protocol.errors import InvalidConfigError
from ...protocol.limits import INT32_MAX
from .key import ConfigKey, choice, number, switch

MAX_DURATION_CHARS: Final = 64
_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{0,9}))?S)?)?", re.ASCII | re.IGNORECASE
)
_BY_DURATION: Final = "by_duration:"


@attrs.frozen
class AutoOffsetReset:
    """Where a share group begins to read a partition: `earliest`, `latest`, or at the records of the last `duration_ms`."""

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
            raise ValueError(f"{text!r} is none of earliest, latest, by_duration:<PnDTnHnMn.nS>")
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[:4])
        fraction_ms = int((found[5] or "").ljust(3, "0")[:3])
        return cls("by_duration", (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms, said)

    def __str__(self) -> str:
        return self.text or self.strategy


LATEST: Final = AutoOffsetReset("latest", None, "latest")
SESSION: Final = 45_000, 60_000
HEARTBEAT: Final = 5_000, 15_000
ASSIGNMENT: Final = 0, 15_000


def _ms(name: str, default: int, doc: str, *, low: int = 1) -> ConfigKey:
    return number(name, default, doc, unit="ms", low=low, high=INT32_MAX)


def _count(name: str, default: int, doc: str, *, low: int = 1) -> ConfigKey:
    return number(name, default, doc, low=low, high=INT32_MAX)


GROUP_KEYS: Final[dict[str, ConfigKey]] = {
    key.name: key
    for key in (
        _ms("consumer.session.timeout.ms", 45_000, "How long a member of a consumer group may be silent."),
        _ms("consumer.heartbeat.interval.ms", 5_000, "How often members of a consumer group send a heartbeat."),
        _ms("consumer.assignment.interval.ms", 1_000, "Kept; assignments are made at once.", low=0),
        _ms("share.session.timeout.ms", 45_000, "How long a member of a share group may be silent."),
        _ms("share.heartbeat.interval.ms", 5_000, "How often members of a share group send a heartbeat."),
        _ms("share.assignment.interval.ms", 1_000, "Kept; assignments are made at once.", low=0),
        _ms("share.record.lock.duration.ms", 30_000, "How long a record belongs to the member that it was delivered to."),
        _count("share.delivery.count.limit", 5, "How often a record is delivered at most."),
        _count("share.partition.max.record.locks", 2_000, "Records of a partition that are delivered and not acknowledged."),
        ConfigKey(
            name="share.auto.offset.reset",
            type="string",
            default=LATEST,
            read=AutoOffsetReset.parse,
            write=str,
            doc="Where reading a partition begins.",
            valid="earliest, latest, by_duration:<PnDTnHnMn.nS>",
        ),
        choice(
            "share.isolation.level",
            False,
            {"read_uncommitted": False, "read_committed": True},
            "Whether records of transactions that have not committed are delivered.",
        ),
        switch("share.renew.acknowledge.enable", True, "Whether members may keep records for longer."),
        _ms("streams.session.timeout.ms", 45_000, "How long a member of a Streams group may be silent."),
        _ms("streams.heartbeat.interval.ms", 5_000, "How often members of a Streams group send a heartbeat."),
        _ms("streams.assignment.interval.ms", 1_000, "Kept; assignments are made at once.", low=0),
        _ms("streams.initial.rebalance.delay.ms", 3_000, "How long an empty Streams group waits for more members.", low=0),
        _count("streams.num.standby.replicas", 0, "Standby tasks for each task with state.", low=0),
    )
}
LIMITS: Final[dict[str, tuple[int, int]]] = {
    **{f"{kind}.session.timeout.ms": SESSION for kind in ("consumer", "share", "streams")},
    **{f"{kind}.heartbeat.interval.ms": HEARTBEAT for kind in ("consumer", "share", "streams")},
    **{f"{kind}.assignment.interval.ms": ASSIGNMENT for kind in ("consumer", "share", "streams")},
    "share.record.lock.duration.ms": (15_000, 60_000),
    "share.delivery.count.limit": (2, 10),
    "share.partition.max.record.locks": (100, 4_000),
    "streams.num.standby.replicas": (0, 2),
}
"""What a group may have, both ends inclusive, on a server that is not lenient."""

GroupConfig = Mapping[str, Any]
"""The value of every key of `GROUP_KEYS`."""


def group_config(defaults: GroupConfig, overrides: Mapping[str, str], *, lenient: bool) -> GroupConfig:
    """A group's configuration. Raises InvalidConfigError naming the key, the value and what would be valid."""
    values = dict(defaults)
    for name, text in overrides.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise InvalidConfigError(f"Unknown group config name: {name}")
        try:
            values[name] = value = key.read(text.strip() if key.type == "boolean" else text)
        except ValueError as exc:
            raise InvalidConfigError(f"group configuration {name}={text!r}: {exc}") from exc
        low, high = LIMITS.get(name, (0, INT32_MAX))
        if name in LIMITS and not lenient and not low <= value <= high:
            raise InvalidConfigError(f"group configuration {name}={text!r}: {value} is not in {low}..{high}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if (session in overrides or heartbeat in overrides) and values[session] <= values[heartbeat]:
            raise InvalidConfigError(f"{session}={values[session]} is not above {heartbeat}={values[heartbeat]}")
    return values
