"""The settings of ingest: the keys of `[[ingest]]` tables and of their maps, and what ingest reports."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from ...server.config.broker_config import Address
from ...server.config.key import ConfigKey, bool_key, described, enum_key, int_key, keys_of, parsed_key, text, text_key
from ..forward.errors import SettingsError
from ..forward.settings.link_settings import Secret, read_name, read_secret
from ..forward.settings.process_settings import LinkKind, ProcessSettings, read_keys
from .file_settings import FileLink
from .topic_names import check_name

MAX_UNACKNOWLEDGED: Final = 500
"""Messages that the broker may send without an acknowledgement. Their packet ids fit the metadata of a committed offset."""
_LEVEL: Final = re.compile(r"\{(\d+|topic)\}")


def check_filter(value: str) -> str:
    """A topic filter of MQTT (section 4.7). Raises ValueError."""
    levels = value.split("/")
    wrong = any(("+" in level or "#" in level) and len(level) > 1 for level in levels) or "#" in levels[:-1]
    if wrong or "\0" in value or len(value.encode()) > 65535:
        raise ValueError(f"{value!r} is not a topic filter: + and # are whole levels, and # is the last one")
    if levels[0] == "$share":
        raise ValueError(f"{value!r}: shared subscriptions have no session of their own")
    return value


def check_template(value: str) -> str:
    """A text with `{1}` for a level, or `{topic}`. Raises ValueError."""
    rest = _LEVEL.sub("", value)
    if "{" in rest or "}" in rest or "{0}" in value:
        raise ValueError(f"{value!r} may have {{1}} for the first level, and so on, or {{topic}}; nothing else in braces")
    return value


def _target(value: str) -> str:
    template = check_template(value)
    if not _LEVEL.search(value):
        check_name(value)
    return template


def check_key(value: str) -> str:
    """A template, or a JSON pointer. Raises ValueError."""
    return value if value.startswith("/") else check_template(value)


def check_pointer(value: str) -> str:
    """A JSON pointer (RFC 6901). Raises ValueError."""
    if not value.startswith("/"):
        raise ValueError(f"{value!r} is not a JSON pointer such as /time")
    return value


def filled(template: str, mqtt_topic: str) -> str:
    """Return a template with the levels of a topic. Raises ValueError for a level that the topic lacks."""
    levels = mqtt_topic.split("/")

    def level(match: re.Match[str]) -> str:
        if match[1] == "topic":
            return ".".join(levels)
        if int(match[1]) > len(levels):
            raise ValueError(f"the topic has no level {match[1]}")
        return levels[int(match[1]) - 1]

    return _LEVEL.sub(level, template)


@attrs.frozen(kw_only=True)
class Map:
    """A map: messages of a filter, and the topic, key and timestamp of their records."""

    filter: str = attrs.field(
        metadata=described(
            "string", lambda value: check_filter(text(value)), "Topic filter at the broker, such as `sensors/+/temperature`."
        )
    )
    topic: str = attrs.field(
        metadata=described(
            "string",
            lambda value: _target(text(value)),
            "Topic of the records. May have `{1}`, `{2}` and so on for levels of the message's topic, and `{topic}` for all "
            "levels with dots between them.",
        )
    )
    key: str | None = parsed_key(
        check_key,
        "string",
        "Key of the records: a text with levels, such as `{2}`, or a JSON pointer into the payload: `/device/id`.",
    )
    timestamp: str | None = parsed_key(
        check_pointer,
        "string",
        "JSON pointer to the time: seconds or milliseconds since 1970, or ISO 8601.",
        shown="time of arrival",
    )

    def matches(self, mqtt_topic: str) -> bool:
        """Return whether the filter matches a topic (MQTT, section 4.7)."""
        wanted, levels = self.filter.split("/"), mqtt_topic.split("/")
        if levels[0].startswith("$") and wanted[0] in ("+", "#"):
            return False
        if wanted[-1] == "#":
            wanted = wanted[:-1]
            levels = levels[: len(wanted)]
        return len(wanted) == len(levels) and all(each in ("+", level) for each, level in zip(wanted, levels, strict=True))


MAP_KEYS: Final[Mapping[str, ConfigKey]] = keys_of(Map)


def read_maps(value: Any) -> tuple[Map, ...]:
    """A list of tables. Raises ValueError."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(each, dict) for each in value):
        raise ValueError("maps are tables [[ingest.map]]")
    maps = []
    for number, table in enumerate(value, 1):
        try:
            maps.append(Map(**read_keys(f"map {number}", table, MAP_KEYS)))
        except TypeError:
            raise ValueError(f"map {number}: it needs the keys filter and topic") from None
        except SettingsError as exc:
            raise ValueError(str(exc)) from exc
    return tuple(maps)


class Protocol(enum.Enum):
    """The version of MQTT."""

    MQTT_5 = "5"
    MQTT_3_1_1 = "3.1.1"


@attrs.frozen(kw_only=True)
class IngestLink:
    """A broker, and the messages that become records."""

    name: str = attrs.field(metadata=described("string", read_name, "Name of the link, part of its transactional id."))
    broker: Address = attrs.field(metadata=described("address", lambda value: Address.parse(str(value)), "MQTT broker."))
    map: tuple[Map, ...] = attrs.field(
        metadata=described("table", read_maps, "Maps, below. The first whose filter matches decides.")
    )
    protocol: Protocol = enum_key(Protocol.MQTT_5, "Version of MQTT: `5` or `3.1.1`.")
    qos: int = int_key(1, "QoS of the subscriptions: 0, 1 or 2. The broker lowers it to that of each message.", low=0, high=2)
    client_id: str | None = text_key(
        "Client id, which owns the session at the broker. No other client may have it.", shown="triolog-NAME"
    )
    session_expiry_s: int = int_key(
        2**32 - 1,
        "Time that the broker keeps the session without a connection. MQTT 5 only; the default is without end.",
        high=2**32 - 1,
        unit="s",
    )
    receive_maximum: int = int_key(
        MAX_UNACKNOWLEDGED,
        "Messages that the broker may send before they are acknowledged. MQTT 5 only; for 3.1.1 set it at the broker.",
        low=1,
        high=MAX_UNACKNOWLEDGED,
    )
    keepalive_s: int = int_key(60, "Keep alive interval.", low=5, high=65_535, unit="s")
    tls: bool = bool_key(False, "TLS to the broker.")
    ca_file: str | None = text_key(
        "PEM with the CAs that may sign the broker's certificate.", kind="path", shown="the system's"
    )
    cert_file: str | None = text_key("PEM with a certificate of our own and its key.", kind="path")
    user: str | None = text_key("User at the broker.")
    password: Secret | None = attrs.field(
        default=None,
        metadata=described("table", read_secret, 'Password: `{ file = "PATH" }` or `{ variable = "NAME" }`.', shown="-"),
    )
    retained: bool = bool_key(True, "Store the retained messages that the broker sends after a subscription.")
    max_payload_bytes: int = int_key(
        1_000_000, "Largest payload. A larger one goes to the dead-letter topic, cut to this size.", low=1, high=64 * 2**20
    )
    create_topics: bool = bool_key(True, "Creation of missing topics.")
    max_topics: int = int_key(
        1000, "Topics that the maps may name. Messages for further ones are dead letters.", low=1, high=100_000
    )
    dead_letter_topic: str = attrs.field(
        default="mqtt-dead-letters",
        metadata=described(
            "string",
            lambda value: check_name(text(value)),
            "Topic for messages that cannot be mapped or stored, with the reason.",
        ),
    )

    @property
    def own_client_id(self) -> str:
        """Return the client id at the broker."""
        return self.client_id or f"triolog-{self.name}"

    def __attrs_post_init__(self) -> None:
        if self.password is not None and self.user is None:
            raise SettingsError(f"link {self.name}: password needs user")
        if not self.tls and (self.ca_file or self.cert_file):
            raise SettingsError(f"link {self.name}: ca_file and cert_file need tls = true")


@attrs.frozen(kw_only=True)
class IngestSettings(ProcessSettings):
    """Everything that the process needs to know."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        owners: dict[tuple[Address, str], str] = {}
        topics: dict[str, str] = {}
        for link in self.links:
            if isinstance(link, FileLink):
                if (other := topics.setdefault(link.positions, link.name)) != link.name:
                    raise SettingsError(f"links {other} and {link.name} have the same positions_topic {link.positions}")
                continue
            owner = owners.setdefault((link.broker, link.own_client_id), link.name)
            if owner != link.name:
                raise SettingsError(f"links {owner} and {link.name} have the same client_id at {link.broker}")


@attrs.frozen(kw_only=True)
class IngestKind(LinkKind):
    """Links from brokers, and from files. Both kinds are `[[ingest]]` tables; one with `files` is a link from files."""

    def read_link(self, source: str, table: Mapping[str, Any]) -> Any:
        if "files" not in table:
            return super().read_link(source, table)
        values = read_keys(source, table, FILE_KEYS)
        for key in ("name", "topic"):
            if key not in values:
                raise SettingsError(f"{source}: the key {key!r} is missing")
        return FileLink(**values)

    def package_for(self, links: Sequence[Any]) -> str | None:
        return None if all(isinstance(link, FileLink) for link in links) else self.package


FILE_KEYS: Final[Mapping[str, ConfigKey]] = keys_of(FileLink)

INGEST: Final = IngestKind(
    name="ingest",
    command=("ingest", "mqtt"),
    process_settings=IngestSettings,
    link_settings=IngestLink,
    required=("name", "broker", "map"),
    gauges={
        "records_per_second": "Rate over the last half minute.",
        "bytes_per_second": "Rate of payloads over the last half minute.",
    },
    counters={
        "records": "Records stored and acknowledged, dead letters included.",
        "bytes": "Bytes of their payloads.",
        "batches": "Appends or transactions that stored them.",
        "failures": "Retries of the link after a failure.",
        "retained": "Retained messages that arrived.",
        "duplicates": "Messages that the broker marked as sent again.",
        "avoided_records": "Messages sent again that were already stored, and were not stored twice.",
        "reused_packet_ids": "New messages with the packet id of an unfinished one.",
        "dead_letter_records": "Messages that went to the dead-letter topic.",
        "truncated_files": "Files that were truncated while they were followed, or since.",
        "lost_sessions": "Connections at which the broker no longer had the session.",
    },
    package="paho",
    extra="mqtt",
)
