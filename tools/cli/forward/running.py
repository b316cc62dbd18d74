"""Runs a process with links, for the commands that have one: their common options, and how they begin and end."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ....protocol.extras import how_to_install
from ..terminal.failures import FailedError

if TYPE_CHECKING:
    from ...forward.link_loop import LinkLoop
    from ...forward.process.run_links import MakeLink
    from ...forward.settings.process_settings import LinkKind

FILE: Final = click.Path(exists=True, dir_okay=False)


def process_options(table: str) -> Callable[[Any], Any]:
    """Add the options that all processes with links have. `table`: of their links in a file."""
    options = (
        click.option("-c", "--config", "config_file", type=FILE, help=f"TOML file with links: tables [[{table}]]."),
        click.option("--server-config", type=FILE, hidden=True, help="The same tables in a server's file."),
        click.option("--parent", type=int, hidden=True, help="Stop when this parent process ends."),
        click.option(
            "-s", "--server", metavar="HOST:PORT", envvar="TRIOLOG_SERVER", show_envvar=True, help="Server of the records."
        ),
        click.option(
            "--tls-ca",
            type=FILE,
            envvar="TRIOLOG_TLS_CA",
            show_envvar=True,
            help="Use TLS with the server: PEM file with its CA.",
        ),
        click.option(
            "--tls-cert",
            type=FILE,
            envvar="TRIOLOG_TLS_CERT",
            show_envvar=True,
            help="PEM file with a certificate of your own.",
        ),
        click.option("--user", envvar="TRIOLOG_USER", show_envvar=True, help="User at the server."),
        click.option(
            "--password-file",
            type=FILE,
            envvar="TRIOLOG_PASSWORD_FILE",
            show_envvar=True,
            help="File with the user's password.",
        ),
        click.option("--state-dir", type=click.Path(file_okay=False), help="Directory for state and commands of the links."),
        click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics over HTTP."),
        click.option("--metrics-token-file", type=FILE, help="File with the token that /metrics requires."),
        click.option(
            "--insecure", is_flag=True, default=None, help="Serve /metrics without a token on an address other than loopback."
        ),
        click.option(
            "--ready-file", type=click.Path(dir_okay=False), hidden=True, help="Create this file when links accept commands."
        ),
        click.option(
            "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
        ),
        click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True),
    )

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def with_process_options(values: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a file, or of one link, with those of the options over them. A usage error for an address."""
    from ....server.config.broker_config import Address
    from ...forward.settings.link_settings import Secret

    try:
        addresses = {name: Address.parse(options[name]) for name in ("server", "metrics") if options[name] is not None}
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    names = ("node", "state_dir", "tls_ca", "tls_cert", "user", "metrics_token_file", "insecure")
    given = {name: options[name] for name in names if options.get(name) is not None}
    if options["password_file"] is not None:
        given["password"] = Secret("file", options["password_file"])
    return {**values, **addresses, **given}


@contextlib.contextmanager
def run(
    kind: LinkKind, options: dict[str, Any], settings_of: Callable[[dict[str, Any]], Any], *, drain: bool = False
) -> Iterator[tuple[Any, Callable[[MakeLink], None]]]:
    """Yield the settings, and a function that runs the links until all have ended. Raises UsageError, FailedError."""
    import trio

    from ....server.service.log_lines import configure_logging
    from ....server.storage.child_process import NICENESS
    from ...forward.errors import LinkStoppedError, SettingsError
    from ...forward.process.run_links import run_links
    from ...forward.process.supervisor import state_dir_of

    has_file = options["config_file"] is not None or options["server_config"] is not None
    if has_file:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until somebody listens
    configure_logging(options["log_level"], as_json=options["log_format"] == "json")
    if options["parent"] is not None:  # a server's own work comes first
        os.nice(NICENESS)

    def read_again() -> Any:
        try:
            return settings_of(options)
        except click.UsageError as exc:
            raise SettingsError(exc.message) from exc

    def run_all(make: MakeLink) -> None:
        links = trio.run(
            partial(
                run_links,
                kind,
                settings,
                state_dir_of(kind, settings),
                make,
                drain=drain,
                read_again=read_again if has_file else None,
                parent=options["parent"],
                started=_ready(options["ready_file"]),
            )
        )
        _end(links, drained=drain)

    try:
        settings = settings_of(options)
        package = kind.package_for(settings.links)
        if package is not None and importlib.util.find_spec(package) is None:
            raise click.UsageError(f"triolog {kind.name} needs {package}: {how_to_install(kind.extra)}")
        yield settings, run_all
    except SettingsError as exc:
        raise click.UsageError(str(exc)) from exc
    except LinkStoppedError as exc:
        raise FailedError(str(exc)) from exc


def _ready(path: str | None) -> Callable[[], None]:
    return lambda: None if path is None else Path(path).touch()


def _end(links: list[LinkLoop], *, drained: bool) -> None:
    """Say what has gone wrong. Raises FailedError."""
    failed = [f"link {link.settings.name}: {link.error}" for link in links if link.error is not None]
    if drained:
        failed += [
            f"link {link.settings.name}: topic {topic}: {message}"
            for link in links
            for topic, message in link.progress.snapshot()["troubles"].items()
        ]
    if failed:
        raise FailedError("\n".join(failed))
