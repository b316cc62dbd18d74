"""The settings of a forwarding process: its own keys, and its links. They come from a TOML file, or are those of one link.

The server's own file may hold the tables `[[forward]]` when the server starts the process. Everything else in that file then
belongs to the server and is ignored; the process's own keys are in a table `[forward_process]`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from ....server.config.broker_config import Address
from ....server.config.broker_settings import is_loopback
from ....server.config.key import ConfigKey, bool_key, described, keys_of, parsed_key, text_key
from ..errors import SettingsError
from .link_settings import LINK_KEYS, REQUIRED, LinkSettings, Secret, read_name, read_secret, target_name

TABLES: Final = "forward"
PROCESS_TABLE: Final = "forward_process"
"""Of the process's own keys in a server's file."""
DEFAULT_SERVER: Final = Address(host="127.0.0.1", port=9095)


@attrs.frozen(kw_only=True)
class ForwardSettings:
    """Everything that a process needs to know."""

    server: Address = attrs.field(
        default=DEFAULT_SERVER,
        metadata=described(
            "address",
            lambda value: Address.parse(str(value)),
            "Native listener of the server that is read.",
            shown=str(DEFAULT_SERVER),
        ),
    )
    tls_ca: str | None = text_key("PEM with the CAs that may sign its certificate. With it the link uses TLS.", kind="path")
    tls_cert: str | None = text_key("PEM with a certificate of ours and its key.", kind="path")
    user: str | None = text_key("User at the source.")
    password: Secret | None = attrs.field(
        default=None,
        metadata=described(
            "table",
            read_secret,
            'Password of the user: `{ file = "PATH" }` or `{ variable = "NAME" }`. By default TRIOLOG_PASSWORD has it.',
            shown="-",
        ),
    )
    node: str | None = parsed_key(
        read_name, "string", "Name of this source upstream, part of the groups' names.", shown="the server's cluster id"
    )
    state_dir: str | None = text_key(
        "Directory for commands and state of links: paused links, and the topics that they forwarded.", kind="path"
    )
    metrics: Address | None = parsed_key(Address.parse, "address", "HTTP address of /metrics. Without it they are off.")
    metrics_token_file: str | None = text_key(
        "File with the token that readers of /metrics send: `Authorization: Bearer TOKEN`.", kind="path"
    )
    insecure: bool = bool_key(False, "Permission to serve /metrics on another address than loopback without a token.")
    links: tuple[LinkSettings, ...]

    @property
    def is_exposed(self) -> bool:
        """Return whether other machines can read /metrics without a token."""
        return self.metrics is not None and self.metrics_token_file is None and not is_loopback(self.metrics.host)

    def __attrs_post_init__(self) -> None:
        if self.is_exposed and not self.insecure:
            raise SettingsError(
                f"metrics {self.metrics}: other machines can read it without a token. Listen on 127.0.0.1, or set "
                "metrics_token_file. To allow it, use --insecure (insecure = true)"
            )
        if self.password is not None and self.user is None:
            raise SettingsError("password needs user")
        if not self.links:
            raise SettingsError(f"no link: add a table [[{TABLES}]]")
        for index, link in enumerate(self.links):
            for other in self.links[:index]:
                _check_apart(link, other)


PROCESS_KEYS: Final[Mapping[str, ConfigKey]] = keys_of(ForwardSettings)


def read_file(path: str, *, is_servers: bool = False) -> dict[str, Any]:
    """Keyword arguments for ForwardSettings. Raises SettingsError that names the file, the key and what would be valid."""
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as exc:
        raise SettingsError(f"cannot read {path}: {exc.strerror or exc}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise SettingsError(f"{path} is not TOML: {exc}") from exc
    tables = document.pop(TABLES, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise SettingsError(f"{path}: links are tables [[{TABLES}]]")
    links = tuple(
        read_link(f"{path} [[{TABLES}]] {table.get('name', number)}", table) for number, table in enumerate(tables, 1)
    )
    own = document.pop(PROCESS_TABLE, {}) if is_servers else document
    if not isinstance(own, dict):
        raise SettingsError(f"{path}: {PROCESS_TABLE} is a table")
    return {**_read(f"{path} [{PROCESS_TABLE}]" if is_servers else path, own, PROCESS_KEYS), "links": links}


def read_link(source: str, table: Mapping[str, Any]) -> LinkSettings:
    """Read the settings of one link. Raises SettingsError."""
    values = _read(source, table, LINK_KEYS)
    for key in REQUIRED:
        if key not in values:
            raise SettingsError(f"{source}: the key {key!r} is missing")
    return LinkSettings(**values)


def check_targets(node: str, links: Sequence[LinkSettings], topics: Mapping[str, Sequence[str]]) -> None:
    """Refuse two topics that would go into one. `topics`: what each link means. Raises SettingsError."""
    taken: dict[tuple[str, str], str] = {}
    for link in links:
        for topic in topics[link.name]:
            target = target_name(link.target, topic=topic, node=node, link=link.name)
            owner = f"topic {topic} of link {link.name}"
            other = taken.setdefault((link.to, target), owner)
            if other != owner:
                raise SettingsError(f"{owner} and {other} would both go to {target} at {link.to}. Give one another `target`")


def _check_apart(link: LinkSettings, other: LinkSettings) -> None:
    if link.name == other.name:
        raise SettingsError(f"two links have the name {link.name}")
    same = set(link.topics) & set(other.topics)
    if same and link.to == other.to and link.target == other.target and "{link}" not in link.target:
        raise SettingsError(
            f"links {other.name} and {link.name} would both send {sorted(same)[0]} to the same topic at "
            f"{link.to}. Give one another `target`"
        )


def _read(source: str, values: Mapping[str, Any], keys: Mapping[str, ConfigKey]) -> dict[str, Any]:
    read = {}
    for name, value in values.items():
        key = keys.get(name)
        if key is None:
            raise SettingsError(f"{source}: unknown key {name!r}. Known keys: {', '.join(keys)}")
        try:
            read[name] = key.read(value)
        except ValueError as exc:
            raise SettingsError(f"{source}: {name}: {exc}") from exc
    return read
