"""The options of `triolog forward`: reads the settings, and opens the source."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ..terminal.failures import NotConnectedError
from ..terminal.places import read_position, time_of
from ..terminal.times import LOCAL
from .running import with_process_options

if TYPE_CHECKING:
    from ...client.login import LoginConfig
    from ...client.tls import TlsConfig
    from ...forward.settings.forward_settings import ForwardSettings
    from ...forward.settings.process_settings import ProcessSettings
    from ...forward.source.source import Source

ONE_LINK: Final = {
    "link": "name",
    "to": "to",
    "topics": "topics",
    "pattern": "topic_pattern",
    "target": "target",
    "delivery": "delivery",
    "start": "start",
    "max_rate": "max_bytes_per_second",
    "windows": "windows",
    "timezone": "timezone",
    "compression": "compression",
    "priority": "priority",
    "max_delay_ms": "max_delay_ms",
    "dead_letter_topic": "dead_letter_topic",
    "origin_header": "origin_header",
    "create_topics": "create_topics",
}
"""Option -> key of the link that it is."""


def settings_of(options: dict[str, Any]) -> ForwardSettings:
    """Raises SettingsError, or a usage error."""
    from ...forward.settings.forward_settings import FORWARD, ForwardSettings

    given = {key: options[option] for option, key in ONE_LINK.items() if options[option] not in (None, ())}
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
    if "start" in given:
        given["start"] = _start(given["start"])
    file = options["config_file"] or options["server_config"]
    if file is not None:
        if given or options["kafka"] or options["secrets"]:
            raise click.UsageError("--config already has links. Leave out the options of a single link")
        values = FORWARD.read_file(file, is_servers=options["server_config"] is not None)
    else:
        if "name" not in given or "to" not in given:
            raise click.UsageError("nothing to forward. Give --to, --topics and --link, or --config FILE")
        values = {"links": (FORWARD.read_link("the command line", {**given, "kafka": _kafka(options)}),)}
    return ForwardSettings(**with_process_options(values, options))


def _start(text: str) -> str | datetime:
    """Return the value of the key `start` for a position. A usage error for an offset: partitions have different ones."""
    from ...client.procedures.topics import EARLIEST, LATEST

    place = read_position(text, LOCAL, "--start")
    if (time_ms := time_of(place)) is not None:
        return datetime.fromtimestamp(time_ms / 1000, UTC)
    if place not in (EARLIEST, LATEST):
        raise click.UsageError(f"--start {text} is not start, end or a time")
    return "earliest" if place == EARLIEST else "latest"


def _kafka(options: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in options["kafka"]:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--kafka {text!r} is not KEY=VALUE")
        found[key] = value
    for text in options["secrets"]:
        key, equals, file = text.partition("=")
        if not equals:
            raise click.UsageError(f"--secret {text!r} is not KEY=FILE")
        found[key] = {"file": file}
    return found


def _login(settings: ProcessSettings) -> LoginConfig | None:
    """Return the login for the server; it reads the password at every login, so a renewed one is used."""
    from ....protocol.errors import SaslAuthenticationError
    from ...client.login import LoginConfig
    from ...forward.settings.link_settings import Secret

    if settings.user is None:
        return None
    secret = settings.password or Secret("variable", "TRIOLOG_PASSWORD")

    def password() -> str:
        try:
            return secret.read()
        except (OSError, ValueError) as exc:
            raise SaslAuthenticationError(f"cannot read the password of {settings.user} from its {secret.kind}") from exc

    return LoginConfig(user=settings.user, password=password)


def server_access(settings: ProcessSettings) -> tuple[TlsConfig | None, LoginConfig | None]:
    """Return how a link connects to the server. Raises NotConnectedError when the files of TLS cannot be used."""
    from ...client.tls import TlsConfig

    uses_tls = settings.tls_ca is not None or settings.tls_cert is not None
    tls = TlsConfig(ca_file=settings.tls_ca, certificate_file=settings.tls_cert) if uses_tls else None
    if tls is not None:
        try:
            tls.context()
        except OSError as exc:
            raise NotConnectedError(f"cannot use --tls-ca or --tls-cert: {exc}") from exc
    return tls, _login(settings)


@contextlib.contextmanager
def open_source(settings: ForwardSettings, from_dir: str | None) -> Iterator[Callable[[], Source]]:
    """Yield a function that opens the source of a link."""
    if from_dir is None:
        from ...forward.source.server import ServerSource

        tls, login = server_access(settings)
        yield lambda: ServerSource(settings.server, tls, login)
        return
    from ...forward.settings.link_settings import Delivery
    from ...forward.source.directory import DirectorySource
    from ..terminal.stopped import stopped

    if any(link.delivery is Delivery.AT_LEAST_ONCE for link in settings.links):
        raise click.UsageError(
            "--from-dir changes nothing in DIR, so only the upstream can record the progress. It needs exactly-once"
        )
    with stopped(from_dir, writes=False) as (fs, found):
        yield lambda: DirectorySource(fs, found)
