"""`triolog forward`: hand records on to a Kafka upstream; and the commands that ask and tell links that run."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ....protocol.extras import how_to_install
from ..terminal.failures import FailedError
from ..terminal.grammar import Group
from .asking import drain, pause, reset, resume
from .status import status, top

if TYPE_CHECKING:
    from ...forward.link import Link
    from ...forward.settings.forward_settings import ForwardSettings

FILE: Final = click.Path(exists=True, dir_okay=False)


@click.group(cls=Group, invoke_without_command=True)
@click.option("-c", "--config", "config_file", type=FILE, help="TOML file with links: tables [[forward]].")
@click.option("--server-config", type=FILE, hidden=True, help="The same tables in a server's file.")
@click.option("--parent", type=int, hidden=True, help="Stop when this parent process ends.")
@click.option("-s", "--server", metavar="HOST:PORT", envvar="TRIOLOG_SERVER", show_envvar=True, help="Source server.")
@click.option(
    "--tls-ca", type=FILE, envvar="TRIOLOG_TLS_CA", show_envvar=True, help="Use TLS with the source: PEM file with its CA."
)
@click.option(
    "--tls-cert", type=FILE, envvar="TRIOLOG_TLS_CERT", show_envvar=True, help="PEM file with a certificate of your own."
)
@click.option("--user", envvar="TRIOLOG_USER", show_envvar=True, help="User at the source.")
@click.option(
    "--password-file", type=FILE, envvar="TRIOLOG_PASSWORD_FILE", show_envvar=True, help="File with the user's password."
)
@click.option(
    "--from-dir", type=click.Path(exists=True, file_okay=False), help="Log directory of a stopped server, as the source."
)
@click.option("--to", metavar="HOST:PORT", help="Upstream brokers, separated by commas.")
@click.option("--topics", metavar="NAME,...", help="Topics to forward.")
@click.option("--pattern", metavar="REGEX", help="Topics to forward, by a regular expression for the whole name.")
@click.option("--link", metavar="NAME", help="Name of the link: part of its group and transactional id upstream.")
@click.option("--node", metavar="NAME", help="Name of this source upstream.  [default: the server's cluster id]")
@click.option("--target", metavar="TEMPLATE", help="Names of topics upstream, such as {node}.{topic}.")
@click.option("--delivery", type=click.Choice(["exactly-once", "at-least-once"]), help="Delivery.  [default: exactly once]")
@click.option(
    "--start", metavar="POSITION", help="Position at which new topics begin: start (the default), end, or a time such as 10m."
)
@click.option("--max-rate", metavar="BYTES", help="Cap in bytes a second.")
@click.option(
    "--window", "windows", multiple=True, metavar="WINDOW", help="Times when the link may send, such as 'mon-fri 22:00-06:00'."
)
@click.option("--timezone", metavar="ZONE", help="Time zone of the windows.  [default: the system's]")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="Compression of batches.  [default: none]",
)
@click.option("--priority", metavar="NAME,...", help="Topics that go before the others while there is a backlog.")
@click.option("--max-delay-ms", metavar="MS", help="Time that a record may wait for others.")
@click.option("--dead-letter-topic", metavar="NAME", help="Dead letter topic, for records that the upstream refuses.")
@click.option("--origin-header", is_flag=True, default=None, help="Add the origin of each record as headers.")
@click.option("--create-topics/--no-create-topics", default=None, help="Create missing topics upstream, or do not.")
@click.option("--kafka", "kafka", multiple=True, metavar="KEY=VALUE", help="Setting of librdkafka (repeatable).")
@click.option("--secret", "secrets", multiple=True, metavar="KEY=FILE", help="Secret setting of librdkafka, read from FILE.")
@click.option("--drain", "drains", is_flag=True, help="Stop when everything is sent.")
@click.option("--state-dir", type=click.Path(file_okay=False), help="Directory for state and commands of the links.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics over HTTP.")
@click.option("--metrics-token-file", type=FILE, help="File with the token that /metrics requires.")
@click.option(
    "--insecure", is_flag=True, default=None, help="Serve /metrics without a token on an address other than loopback."
)
@click.option("--ready-file", type=click.Path(dir_okay=False), hidden=True, help="Create this file when links accept commands.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Forward records to a Kafka upstream, in order and once, until SIGTERM. On SIGHUP it reads --config again.

    The links come from --config. Or give one link with --to, --topics (or --pattern) and --link. Exit code 0 after a clean
    shutdown, or with --drain when everything is upstream; 1 when a link has failed, or a topic could not be forwarded.
    """
    ctx.ensure_object(dict).update(options=options, state_dir=options["state_dir"])
    if ctx.invoked_subcommand is None:
        _forward(**options)


command.add_command(status)
command.add_command(top)
command.add_command(pause)
command.add_command(resume)
command.add_command(drain)
command.add_command(reset)


def _forward(**options: Any) -> None:
    from ....server.service.log_lines import configure_logging
    from ....server.storage.child_process import NICENESS
    from ...forward.errors import LinkStoppedError, SettingsError
    from ...forward.process.place import default_state_dir

    if importlib.util.find_spec("confluent_kafka") is None:
        raise click.UsageError(f"forwarding needs confluent_kafka: {how_to_install('forward')}")
    import trio

    from ...forward.process.run_links import run_links
    from ...forward.upstream.connection import LIBRDKAFKA
    from .options import open_source, settings_of

    has_file = options["config_file"] is not None or options["server_config"] is not None
    if has_file:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until somebody listens
    configure_logging(options["log_level"], as_json=options["log_format"] == "json")
    if options["parent"] is not None:  # a server's own work comes first
        os.nice(NICENESS)
    if options["log_level"] == "debug":
        LIBRDKAFKA.setLevel(logging.DEBUG)
    try:
        settings = settings_of(options)
        state_dir = Path(settings.state_dir) if settings.state_dir else default_state_dir(os.environ)
        with open_source(settings, options["from_dir"]) as opener:
            links = trio.run(
                partial(
                    run_links,
                    settings,
                    state_dir,
                    opener,
                    drain=options["drains"],
                    read_again=partial(_read_again, options) if has_file else None,
                    parent=options["parent"],
                    started=_ready(options["ready_file"]),
                )
            )
    except SettingsError as exc:
        raise click.UsageError(str(exc)) from exc
    except LinkStoppedError as exc:
        raise FailedError(str(exc)) from exc
    _end(links, drained=options["drains"])


def _read_again(options: dict[str, Any]) -> ForwardSettings:
    """As at the start. Raises SettingsError."""
    from ...forward.errors import SettingsError
    from .options import settings_of

    try:
        return settings_of(options)
    except click.UsageError as exc:
        raise SettingsError(exc.message) from exc


def _ready(path: str | None) -> Callable[[], None]:
    return lambda: None if path is None else Path(path).touch()


def _end(links: list[Link], *, drained: bool) -> None:
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
