"""What one link is told: the keys of a `[[forward]]` table. Each field declares its key: default, range, meaning."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any, Final

import attrs

from ....protocol.limits import KIB, MIB
from ....protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ....server.config.key import ConfigKey, bool_key, described, enum_key, int_key, keys_of, parsed_key, text
from ...client.procedures.topics import EARLIEST, LATEST, AtTime
from ..errors import SettingsError
from ..pacing.windows import Window, parse_window
from .kafka_settings import kafka_settings, topic_settings
from .names import check_pattern, check_target, topic_name, topic_names
from .secrets import Secret
from .times import read_start, read_zone

MAX_NAME_CHARS: Final = 64
_NAME: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_NAME_CHARS}}}")
OTHER: Final = "other"


class Delivery(enum.Enum):
    """What a crash of anything on the way may do."""

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
    """One link: what goes where, and how."""

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
