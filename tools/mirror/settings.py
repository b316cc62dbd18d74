"""The settings of `[[mirror]]` tables in a server's file. Each key declares its default, range and meaning."""

from __future__ import annotations

import re
import ssl
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from ...protocol.limits import KIB, MIB
from ...server.config.key import ConfigKey, bool_key, described, int_key, keys_of, parsed_key, text_key
from ...server.config.values import Address
from ...server.storage.disk.paths import is_internal
from ..client.login import BEST_FIRST, LoginConfig
from ..client.tls import TlsConfig
from ..forward.errors import SettingsError
from ..forward.settings.link_settings import Secret, check_pattern, read_name, read_secret, topic_name
from ..forward.settings.process_settings import read_keys

TABLE: Final = "mirror"
MAX_LINKS: Final = 16


def _addresses(value: Any) -> tuple[Address, ...]:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not HOST:PORT,HOST:PORT")
    return tuple(Address.parse(part.strip()) for part in value.split(","))


def _topics(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list of topics")
    names = tuple(dict.fromkeys(topic_name(each) for each in value))
    if own := [name for name in names if is_internal(name)]:
        raise ValueError(f"{', '.join(own)}: set internal_topics = true to copy the server's own topics, all of them")
    return names


def _mechanism(value: Any) -> str:
    if value not in BEST_FIRST:
        raise ValueError(f"{value!r} is not one of {', '.join(BEST_FIRST)}")
    return str(value)


@attrs.frozen(kw_only=True)
class MirrorSettings:
    """The settings of one link to a source."""

    name: str = attrs.field(
        default="source",
        metadata=described("string", read_name, "Name of the source. It stays when the address changes."),
    )
    source: tuple[Address, ...] = attrs.field(
        metadata=described("string", _addresses, "Kafka listeners of the source, as HOST:PORT,HOST:PORT.")
    )
    topics: tuple[str, ...] = attrs.field(default=(), metadata=described("list", _topics, "Topics, by name."))
    topic_pattern: str | None = parsed_key(
        check_pattern, "string", "Topics, by a regular expression for the whole name. Without both keys: all topics."
    )
    internal_topics: bool = bool_key(
        False, "Copy the server's own topics from a triolog: groups, transactions, producer ids, share groups."
    )
    groups: str = attrs.field(
        default=".*",
        metadata=described(
            "string",
            check_pattern,
            "Groups whose committed offsets are copied, by a regular expression. With internal_topics all are.",
        ),
    )
    tls: bool = bool_key(False, "Use TLS with the CAs of the system.")
    tls_ca: str | None = text_key("PEM with the CAs that may sign its certificate. With it the link uses TLS.", kind="path")
    tls_cert: str | None = text_key("PEM with a certificate of ours and its key.", kind="path")
    user: str | None = text_key("User at the source.")
    password: Secret | None = attrs.field(
        default=None,
        metadata=described(
            "table", read_secret, 'Password of the user: `{ file = "PATH" }` or `{ variable = "NAME" }`.', shown="-"
        ),
    )
    sasl_mechanism: str | None = parsed_key(
        _mechanism, "string", "SCRAM-SHA-512, SCRAM-SHA-256, or PLAIN with TLS. By default the first."
    )
    state_dir: str | None = text_key("Directory of the socket for `triolog mirror` and `promote`.", kind="path")
    fetch_bytes: int = int_key(
        8 * MIB, "Most that one request reads. A larger record batch comes whole.", low=64 * KIB, high=64 * MIB
    )
    max_bytes_per_second: int = int_key(0, "Cap on copied bytes. 0: none.", low=0, high=2**40)

    def __attrs_post_init__(self) -> None:
        if (self.user is None) != (self.password is None):
            raise SettingsError(f"mirror {self.name}: user and password go together")

    def matches(self, topic: str) -> bool:
        """Return whether the link copies a topic of this name."""
        if is_internal(topic):
            return self.internal_topics
        if not self.topics and self.topic_pattern is None:
            return True
        return topic in self.topics or (self.topic_pattern is not None and re.fullmatch(self.topic_pattern, topic) is not None)

    @property
    def uses_tls(self) -> bool:
        """Return whether connections are encrypted."""
        return self.tls or self.tls_ca is not None or self.tls_cert is not None

    def tls_context(self) -> ssl.SSLContext:
        """Read the files of the client's TLS settings. Raises SettingsError that names them."""
        try:
            return TlsConfig(ca_file=self.tls_ca, certificate_file=self.tls_cert).context()
        except OSError as exc:
            files = " and ".join(f"{key} {path}" for key in ("tls_ca", "tls_cert") if (path := getattr(self, key)))
            raise SettingsError(f"mirror {self.name}: cannot use {files}: {exc}") from exc

    @property
    def login(self) -> LoginConfig | None:
        """Return the client's login; it reads the password for each connection."""
        if self.user is None or self.password is None:
            return None
        return LoginConfig(user=self.user, password=self.password.read, mechanism=self.sasl_mechanism)


def _keys() -> dict[str, ConfigKey]:
    """`from` is no name for an attribute."""
    return {"from" if name == "source" else name: key for name, key in keys_of(MirrorSettings).items()}


LINK_KEYS: Final[Mapping[str, ConfigKey]] = _keys()


def read_links(config_file: str) -> tuple[MirrorSettings, ...]:
    """Read the `[[mirror]]` tables of a server's file, blocking. Raises SettingsError that names the file and the key."""
    try:
        document = tomllib.loads(Path(config_file).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise SettingsError(f"cannot read {config_file}: {exc}") from exc
    tables = document.get(TABLE, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise SettingsError(f"{config_file}: sources are tables [[{TABLE}]]")
    links = []
    for number, table in enumerate(tables, 1):
        place = f"{config_file} [[{TABLE}]] {table.get('name', number)}"
        values = read_keys(place, table, LINK_KEYS)
        if "from" not in values:
            raise SettingsError(f"{place}: the key 'from' is missing")
        links.append(MirrorSettings(source=values.pop("from"), **values))
    if len(links) > MAX_LINKS:
        raise SettingsError(f"{config_file}: {len(links)} tables [[{TABLE}]], at most {MAX_LINKS} are possible")
    names = [link.name for link in links]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SettingsError(f"{config_file}: two tables [[{TABLE}]] have the name {twice[0]}")
    if sum(link.internal_topics for link in links) > 1:
        raise SettingsError(f"{config_file}: internal_topics = true in two tables [[{TABLE}]]. A server has one such source")
    return tuple(links)
