"""The settings of one link: the keys of a `[[forward]]` table. Each field declares its key: default, range, meaning."""

from __future__ import annotations

import enum
import re
import zoneinfo
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import attrs

from ....protocol.limits import KIB, MIB
from ....protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ....server.config.key import ConfigKey, bool_key, described, enum_key, int_key, keys_of, parsed_key, text
from ...client.procedures.topics import EARLIEST, LATEST, AtTime
from ..errors import SettingsError
from ..pacing.windows import Window, parse_window
from .names import check_pattern, check_target, topic_name, topic_names
from .secrets import Secret, is_secret, read_value

LOCAL: Final = "local"


def read_zone(name: str) -> tzinfo | None:
    """The zone of a name; None for the system's. Raises ValueError."""
    if name.lower() == LOCAL:
        return None
    if name.upper() == "UTC":
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise ValueError(f"there is no time zone {name!r}; write Europe/Berlin, UTC or local") from exc


def read_start(value: Any) -> AtTime:
    """`earliest`, `latest`, or a time. Raises ValueError."""
    if isinstance(value, datetime):
        return AtTime(int(value.timestamp() * 1000))
    places = {"earliest": EARLIEST, "latest": LATEST}
    text = str(value)
    if text.lower() in places:
        return places[text.lower()]
    try:
        return AtTime(int(datetime.fromisoformat(text).timestamp() * 1000))
    except ValueError:
        raise ValueError(f"{text!r} is neither earliest nor latest nor a time such as 2026-11-25T06:00Z") from None


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


MAX_NAME_CHARS: Final = 64
_NAME: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_NAME_CHARS}}}")
OTHER: Final = "other"


class Delivery(enum.Enum):
    """The delivery guarantee of a link when anything on the way crashes."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Compression(enum.Enum):
    """Of what is sent; the upstream stores it so unless its topic says otherwise."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def read_name(value: Any) -> str:
    """The name of a link or a node: part of a group, of a transactional id and of a directory. Raises ValueError."""
    if not isinstance(value, str) or not _NAME.fullmatch(value) or value in (".", ".."):
        raise ValueError(f"{value!r} is no name of 1 to {MAX_NAME_CHARS} characters a-z, A-Z, 0-9, '.', '_' and '-'")
    return value


def _windows(value: Any) -> tuple[Window, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(each, str) for each in texts):
        raise ValueError(f"{value!r} is not a list of windows")
    return tuple(parse_window(each) for each in texts)


@attrs.frozen(kw_only=True)
class LinkSettings:
    """The settings of one link: its topics, its upstream, and its way of forwarding."""

    name: str = attrs.field(
        metadata=described("string", read_name, "Of the link; its group upstream is `triolog-forward.<node>.<name>`.")
    )
    to: str = attrs.field(metadata=described("string", text, "Upstream brokers, as HOST:PORT,HOST:PORT."))
    topics: tuple[str, ...] = attrs.field(default=(), metadata=described("list", topic_names, "Topics, by name."))
    topic_pattern: str | None = parsed_key(
        check_pattern, "string", "Topics, by a regular expression for the whole name; new ones are found."
    )
    target: str = attrs.field(
        default="{topic}",
        metadata=described(
            "string", lambda value: check_target(text(value)), "Names upstream; may have `{topic}`, `{node}`, `{link}`."
        ),
    )
    priority: tuple[str, ...] = attrs.field(
        default=(),
        metadata=described("list", topic_names, "Topics that go before the others, the first first, while there is a backlog."),
    )
    delivery: Delivery = enum_key(Delivery.EXACTLY_ONCE, "`exactly-once` or `at-least-once`.")
    start: AtTime = attrs.field(
        default=EARLIEST,
        metadata=described(
            "string",
            read_start,
            "Where a topic begins that was never forwarded: `earliest`, `latest`, or a time in ISO 8601.",
            shown="earliest",
        ),
    )
    max_bytes_per_second: int = int_key(0, "Cap on keys, values and headers, before compression; 0: none.", low=0, high=2**40)
    windows: tuple[Window, ...] = attrs.field(
        default=(),
        metadata=described(
            "list", _windows, "When it may send: `22:00-06:00`, `sat,sun`, `mon-fri 22:00-06:00`; by default always."
        ),
    )
    timezone: tzinfo | None = parsed_key(read_zone, "string", "Of the windows.", shown="local")
    compression: Compression = enum_key(Compression.NONE, "none, gzip, snappy, lz4 or zstd.")
    max_delay_ms: int = int_key(500, "How long a record may wait for others that go with it.", low=0, high=60_000)
    transaction_max_bytes: int = int_key(
        16 * MIB, "Most that goes in one transaction, or between two acknowledgements.", low=64 * KIB, high=1024 * MIB
    )
    transaction_timeout_ms: int = int_key(
        60_000, "After which the upstream aborts a transaction that nobody ends.", low=10_000, high=900_000
    )
    create_topics: bool = bool_key(True, "Whether topics that are missing upstream are made, as far as that is allowed.")
    dead_letter_topic: str | None = parsed_key(
        topic_name, "string", "Where records go that the upstream's topic refuses; without it their topic stops."
    )
    origin_header: bool = bool_key(False, "Whether each record says in a header `triolog.origin` where it is from.")
    create_config: Mapping[str, str] = attrs.field(
        factory=dict,
        metadata=described(
            "table", topic_settings, "Configuration of topics that are made, over that of the source.", shown="-"
        ),
    )
    kafka: Mapping[str, str | Secret] = attrs.field(
        factory=dict,
        repr=lambda values: repr(sorted(values)),
        metadata=described("table", kafka_settings, "Settings of librdkafka by their own names.", shown="-"),
    )

    def __attrs_post_init__(self) -> None:
        if not self.topics and self.topic_pattern is None:
            raise SettingsError(f"link {self.name}: topics or topic_pattern says what is forwarded; both are missing")
        if self.dead_letter_topic is not None and self.dead_letter_topic in self.topics and self.target == "{topic}":
            raise SettingsError(f"link {self.name}: dead_letter_topic {self.dead_letter_topic} is a topic that it forwards")

    @property
    def starts_at(self) -> str:
        """As `status` shows it."""
        return {EARLIEST_TIMESTAMP: "earliest", LATEST_TIMESTAMP: "latest"}.get(self.start.timestamp, str(self.start.timestamp))


LINK_KEYS: Final[Mapping[str, ConfigKey]] = keys_of(LinkSettings)
REQUIRED: Final = ("name", "to")

__all__ = ["EARLIEST", "LATEST", "LINK_KEYS", "REQUIRED", "Compression", "Delivery", "LinkSettings", "read_name"]
