"""The settings of one link: the keys of a `[[forward]]` table, each of which declares its default, range and meaning; the
selection of its topics and their names upstream; and secrets.

In a settings file `{ file = "/run/secrets/kafka" }` and `{ variable = "KAFKA_PASSWORD" }` stand for a text, which is shown
nowhere. A password that stands in the file itself is refused, since such files are copied, backed up and shown to others.
"""

from __future__ import annotations

import enum
import os
import re
import zoneinfo
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, Final

import attrs

from ....protocol.errors import RequestError
from ....protocol.limits import KIB, MIB
from ....server.config.key import ConfigKey, bool_key, described, enum_key, int_key, keys_of, parsed_key, text
from ....server.storage.disk.paths import check_topic_name, is_internal
from ...client.procedures.topics import EARLIEST, LATEST, AtTime
from ..errors import SettingsError
from ..pacing import Window, parse_window

FIELDS: Final = ("topic", "node", "link")
_FIELD: Final = re.compile(r"\{([^{}]*)\}")


def check_pattern(text: str) -> str:
    """A regular expression. Raises ValueError."""
    try:
        re.compile(text)
    except re.error as exc:
        raise ValueError(f"{text!r} is not a regular expression: {exc}") from exc
    return text


def check_target(text: str) -> str:
    """A template of names. Raises ValueError."""
    unknown = [name for name in _FIELD.findall(text) if name not in FIELDS]
    if unknown or re.search(r"[{}]", _FIELD.sub("", text)):
        raise ValueError(f"{text!r} may have {', '.join(f'{{{name}}}' for name in FIELDS)}, and nothing else in braces")
    return text


def target_name(template: str, **values: str) -> str:
    """Return the upstream name of a topic."""
    return _FIELD.sub(lambda match: values[match[1]], template)


def wanted_topics(names: Iterable[str], pattern: str | None, there: Iterable[str]) -> list[str]:
    """Those that are there and meant. A pattern means whole names, and no topic of the server's own."""
    named = set(names)
    matches = None if pattern is None else re.compile(pattern)
    return sorted(
        name for name in there if name in named or (matches is not None and not is_internal(name) and matches.fullmatch(name))
    )


def ranks(priority: Iterable[str], topics: Iterable[str]) -> Mapping[str, int]:
    """In which order topics go: the first of `priority` first, then all that it does not name."""
    order = list(priority)
    return {topic: order.index(topic) if topic in order else len(order) for topic in topics}


def topic_names(value: Any) -> tuple[str, ...]:
    """A list of topics, or a text with commas. Raises ValueError."""
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{value!r} is not a list of topics")
    for name in names:
        topic_name(name)
        if is_internal(name):
            raise ValueError(f"{name} is a topic of the server itself and cannot be forwarded")
    return tuple(dict.fromkeys(names))


def topic_name(value: Any) -> str:
    """The name of a topic. Raises ValueError."""
    try:
        check_topic_name(str(value))
    except RequestError as exc:
        raise ValueError(exc.message) from exc
    return str(value)


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
        raise ValueError(f"there is no time zone {name!r}. Use Europe/Berlin, UTC or local") from exc


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
        raise ValueError(f"{text!r} is not earliest, latest or a time such as 2026-11-25T06:00Z") from None


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
        raise ValueError(f"{value!r} is not a name of 1 to {MAX_NAME_CHARS} characters a-z, A-Z, 0-9, '.', '_' and '-'")
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
        metadata=described("string", read_name, "Name of the link. Its group upstream is `triolog-forward.<node>.<name>`.")
    )
    to: str = attrs.field(metadata=described("string", text, "Upstream brokers, as HOST:PORT,HOST:PORT."))
    topics: tuple[str, ...] = attrs.field(default=(), metadata=described("list", topic_names, "Topics, by name."))
    topic_pattern: str | None = parsed_key(
        check_pattern, "string", "Topics, by a regular expression for the whole name. The link finds new ones."
    )
    target: str = attrs.field(
        default="{topic}",
        metadata=described(
            "string", lambda value: check_target(text(value)), "Names upstream. May have `{topic}`, `{node}`, `{link}`."
        ),
    )
    priority: tuple[str, ...] = attrs.field(
        default=(),
        metadata=described(
            "list", topic_names, "Topics that go before the others while there is a backlog. The first of them goes first."
        ),
    )
    delivery: Delivery = enum_key(Delivery.EXACTLY_ONCE, "`exactly-once` or `at-least-once`.")
    start: AtTime = attrs.field(
        default=EARLIEST,
        metadata=described(
            "string",
            read_start,
            "Start of a topic that was never forwarded: `earliest`, `latest`, or a time in ISO 8601.",
            shown="earliest",
        ),
    )
    max_bytes_per_second: int = int_key(0, "Cap on keys, values and headers, before compression. 0: none.", low=0, high=2**40)
    windows: tuple[Window, ...] = attrs.field(
        default=(),
        metadata=described(
            "list",
            _windows,
            "Times when the link may send: `22:00-06:00`, `sat,sun`, `mon-fri 22:00-06:00`. By default always.",
        ),
    )
    timezone: tzinfo | None = parsed_key(read_zone, "string", "Of the windows.", shown="local")
    compression: Compression = enum_key(Compression.NONE, "none, gzip, snappy, lz4 or zstd.")
    max_delay_ms: int = int_key(500, "Time that a record may wait for others that go with it.", low=0, high=60_000)
    transaction_max_bytes: int = int_key(
        16 * MIB, "Most that goes in one transaction, or between two acknowledgements.", low=64 * KIB, high=1024 * MIB
    )
    transaction_timeout_ms: int = int_key(
        60_000, "Time after which the upstream aborts an unfinished transaction.", low=10_000, high=900_000
    )
    create_topics: bool = bool_key(True, "Creation of missing topics upstream, where that is allowed.")
    dead_letter_topic: str | None = parsed_key(
        topic_name, "string", "Topic for records that the upstream's topic refuses. Without it their topic stops."
    )
    origin_header: bool = bool_key(False, "Add a header `triolog.origin` with the origin of each record.")
    create_config: Mapping[str, str] = attrs.field(
        factory=dict,
        metadata=described("table", topic_settings, "Configuration of created topics, over that of the source.", shown="-"),
    )
    kafka: Mapping[str, str | Secret] = attrs.field(
        factory=dict,
        repr=lambda values: repr(sorted(values)),
        metadata=described("table", kafka_settings, "Settings of librdkafka by their own names.", shown="-"),
    )

    def __attrs_post_init__(self) -> None:
        if not self.topics and self.topic_pattern is None:
            raise SettingsError(f"link {self.name}: nothing to forward. Set topics or topic_pattern")
        if self.dead_letter_topic is not None and self.dead_letter_topic in self.topics and self.target == "{topic}":
            raise SettingsError(f"link {self.name}: dead_letter_topic {self.dead_letter_topic} is a topic that it forwards")


LINK_KEYS: Final[Mapping[str, ConfigKey]] = keys_of(LinkSettings)
REQUIRED: Final = ("name", "to")

__all__ = ["EARLIEST", "LATEST", "LINK_KEYS", "REQUIRED", "Compression", "Delivery", "LinkSettings", "read_name"]


SECRET_ENDINGS: Final = (".password", ".secret", ".pem", "oauthbearer.config", "client.assertion")
MAX_SECRET_BYTES: Final = 64 * 1024


@attrs.frozen
class Secret:
    """The location of a secret. The link reads it for each connection, so that a renewed secret takes effect."""

    kind: str
    """`file` or `variable`."""
    name: str

    def read(self) -> str:
        """Raises OSError, ValueError."""
        if self.kind == "variable":
            found = os.environ.get(self.name)
            if found is None:
                raise ValueError(f"the environment has no variable {self.name}")
            return found
        with Path(self.name).open("rb") as stream:
            data = stream.read(MAX_SECRET_BYTES + 1)
        if len(data) > MAX_SECRET_BYTES:
            raise ValueError(f"{self.name} has more than {MAX_SECRET_BYTES} bytes")
        return data.decode().rstrip("\r\n")


def is_secret(key: str) -> bool:
    """Return whether a setting of librdkafka is secret."""
    return key.endswith(SECRET_ENDINGS)


def read_secret(value: Any) -> Secret:
    """Read the location of a secret from a settings value. Raises ValueError, which repeats nothing that may be secret."""
    if not isinstance(value, dict) or len(value) != 1 or not {"file", "variable"} & set(value):
        raise ValueError('a secret is { file = "PATH" } or { variable = "NAME" }')
    ((kind, name),) = value.items()
    if not isinstance(name, str) or not name:
        raise ValueError(f"{kind} = {name!r} is not text")
    return Secret(kind, name)


def read_value(key: str, value: Any) -> str | Secret:
    """A setting of librdkafka as a settings file has it. Raises ValueError."""
    if isinstance(value, dict):
        return read_secret(value)
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is neither text nor a number")
    if is_secret(key):
        raise ValueError('secrets are not allowed in the file itself. Use { file = "PATH" } or { variable = "NAME" }')
    return str(value)


def resolved(values: Mapping[str, str | Secret]) -> dict[str, str]:
    """The texts. Raises ValueError that names the key, not what was found."""
    found = {}
    for key, value in values.items():
        try:
            found[key] = value.read() if isinstance(value, Secret) else value
        except (OSError, ValueError) as exc:
            raise ValueError(f"cannot read {key}: {exc}") from exc
    return found
