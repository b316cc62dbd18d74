"""The settings of a process with links: its own keys, and its links. They come from a TOML file, or are those of one link.

The server's own file may hold the tables of the links when the server starts the process. Everything else in that file then
belongs to the server and is ignored; the process's own keys are in a table of their own, such as `[forward_process]`.
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
from .link_settings import Secret, read_secret

DEFAULT_SERVER: Final = Address(host="127.0.0.1", port=9095)


@attrs.frozen(kw_only=True)
class ProcessSettings:
    """The keys that every process with links has, and its links."""

    server: Address = attrs.field(
        default=DEFAULT_SERVER,
        metadata=described(
            "address",
            lambda value: Address.parse(str(value)),
            "Native listener of the triolog server.",
            shown=str(DEFAULT_SERVER),
        ),
    )
    tls_ca: str | None = text_key("PEM with the CAs that may sign its certificate. With it the link uses TLS.", kind="path")
    tls_cert: str | None = text_key("PEM with a certificate of ours and its key.", kind="path")
    user: str | None = text_key("User at that server.")
    password: Secret | None = attrs.field(
        default=None,
        metadata=described(
            "table",
            read_secret,
            'Password of the user: `{ file = "PATH" }` or `{ variable = "NAME" }`. By default TRIOLOG_PASSWORD has it.',
            shown="-",
        ),
    )
    state_dir: str | None = text_key("Directory for commands and state of links, such as a pause.", kind="path")
    metrics: Address | None = parsed_key(Address.parse, "address", "HTTP address of /metrics. Without it they are off.")
    metrics_token_file: str | None = text_key(
        "File with the token that readers of /metrics send: `Authorization: Bearer TOKEN`.", kind="path"
    )
    insecure: bool = bool_key(False, "Permission to serve /metrics on another address than loopback without a token.")
    links: tuple[Any, ...]

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
            raise SettingsError("no link: add a table of one")
        names = [link.name for link in self.links]
        for name in names:
            if names.count(name) > 1:
                raise SettingsError(f"two links have the name {name}")


@attrs.frozen(kw_only=True)
class LinkKind:
    """A kind of links: their command and settings, and the figures that they report."""

    name: str
    """Of the command, of the tables in a file, and in the names of metrics and directories."""
    command: tuple[str, ...]
    """The command that runs the process, and its arguments before the options."""
    process_settings: type[ProcessSettings]
    link_settings: type[attrs.AttrsInstance]
    required: tuple[str, ...]
    gauges: Mapping[str, str]
    counters: Mapping[str, str]
    """Field of a snapshot -> its meaning."""
    package: str
    """Needed to run it, from the extra `extra`."""
    extra: str

    @property
    def process_keys(self) -> Mapping[str, ConfigKey]:
        return keys_of(self.process_settings)

    @property
    def link_keys(self) -> Mapping[str, ConfigKey]:
        return keys_of(self.link_settings)

    @property
    def process_table(self) -> str:
        """The table with the process's own keys in a server's file."""
        return f"{self.name}_process"

    def read_file(self, path: str, *, is_servers: bool = False) -> dict[str, Any]:
        """Return keyword arguments for the settings. Raises SettingsError that names the file, the key and valid values."""
        try:
            document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as exc:
            raise SettingsError(f"cannot read {path}: {exc.strerror or exc}") from exc
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
            raise SettingsError(f"{path} is not TOML: {exc}") from exc
        tables = document.pop(self.name, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise SettingsError(f"{path}: links are tables [[{self.name}]]")
        links = tuple(
            self.read_link(f"{path} [[{self.name}]] {table.get('name', number)}", table)
            for number, table in enumerate(tables, 1)
        )
        own = document.pop(self.process_table, {}) if is_servers else document
        if not isinstance(own, dict):
            raise SettingsError(f"{path}: {self.process_table} is a table")
        source = f"{path} [{self.process_table}]" if is_servers else path
        return {**read_keys(source, own, self.process_keys), "links": links}

    def read_link(self, source: str, table: Mapping[str, Any]) -> Any:
        """Read the settings of one link. Raises SettingsError."""
        values = read_keys(source, table, self.link_keys)
        for key in self.required:
            if key not in values:
                raise SettingsError(f"{source}: the key {key!r} is missing")
        return self.link_settings(**values)

    def package_for(self, links: Sequence[Any]) -> str | None:
        """Return the package that these links need. None: no other one."""
        return self.package

    def servers(self, config_file: str) -> Any:
        """Read the settings of a server's file, blocking. Raises SettingsError."""
        return self.process_settings(**self.read_file(config_file, is_servers=True))


def read_keys(source: str, values: Mapping[str, Any], keys: Mapping[str, ConfigKey]) -> dict[str, Any]:
    """Read the values of a table. Raises SettingsError for an unknown key and for an invalid value."""
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
