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
@click.option("-c", "--config", "config_file", type=FILE, help="TOML with links: tables [[forward]].")
@click.option("--server-config", type=FILE, hidden=True, help="The same in a server's file.")
@click.option("--parent", type=int, hidden=True, help="The process that started this one: without it there is none.")
@click.option("-s", "--server", metavar="HOST:PORT", envvar="TRIOLOG_SERVER", show_envvar=True, help="The server that is read.")
@click.option("--tls-ca", type=FILE, envvar="TRIOLOG_TLS_CA", show_envvar=True, help="TLS with it: PEM with its CA.")
@click.option("--tls-cert", type=FILE, envvar="TRIOLOG_TLS_CERT", show_envvar=True, help="PEM with a certificate of your own.")
@click.option("--user", envvar="TRIOLOG_USER", show_envvar=True, help="User who logs in at it.")
@click.option("--password-file", type=FILE, envvar="TRIOLOG_PASSWORD_FILE", show_envvar=True, help="File with the password.")
@click.option(
    "--from-dir", type=click.Path(exists=True, file_okay=False), help="The log directory of a stopped server instead."
)
@click.option("--to", metavar="HOST:PORT", help="Upstream brokers, with commas.")
@click.option("--topics", metavar="NAME,...", help="Topics that are forwarded.")
@click.option("--pattern", metavar="REGEX", help="Topics by a regular expression for the whole name.")
@click.option("--link", metavar="NAME", help="Of the link: part of its group and transactional id upstream.")
@click.option("--node", metavar="NAME", help="Who this is upstream; by default the server's cluster id.")
@click.option("--target", metavar="TEMPLATE", help="Names upstream, such as {node}.{topic}.")
@click.option("--delivery", type=click.Choice(["exactly-once", "at-least-once"]), help="By default exactly once.")
@click.option("--start", metavar="POSITION", help="Where new topics begin: start (the default), end, or a time such as 10m.")
@click.option("--max-rate", metavar="BYTES", help="Cap on bytes a second.")
@click.option("--window", "windows", multiple=True, metavar="WINDOW", help="When it may send, such as 'mon-fri 22:00-06:00'.")
@click.option("--timezone", metavar="ZONE", help="Of the windows; by default the system's.")
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), help="Of what is sent; none.")
@click.option("--priority", metavar="NAME,...", help="Topics that go before the others while there is a backlog.")
@click.option("--max-delay-ms", metavar="MS", help="How long a record may wait for others.")
@click.option("--dead-letter-topic", metavar="NAME", help="Where records go that the upstream refuses.")
@click.option("--origin-header", is_flag=True, default=None, help="Each record says where it is from.")
@click.option("--create-topics/--no-create-topics", default=None, help="Whether missing topics are made upstream.")
@click.option("--kafka", "kafka", multiple=True, metavar="KEY=VALUE", help="A setting of librdkafka; may be repeated.")
@click.option("--secret", "secrets", multiple=True, metavar="KEY=FILE", help="One that nobody is to see, from a file.")
@click.option("--drain", "drains", is_flag=True, help="End when nothing is left.")
@click.option("--state-dir", type=click.Path(file_okay=False), help="Where links can be asked and told.")
@click.option("--metrics", metavar="HOST:PORT", help="Where /metrics is answered over HTTP.")
@click.option("--metrics-token-file", type=FILE, help="File with the token that who reads /metrics has to show.")
@click.option("--insecure", is_flag=True, default=None, help="Let everybody read /metrics, on another address than loopback.")
@click.option("--ready-file", type=click.Path(dir_okay=False), hidden=True, help="Made when links can be asked.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Hand records on to a Kafka upstream, in order and once, until SIGTERM. SIGHUP has --config read again.

    What is forwarded comes from --config, or is one link: --to, --topics (or --pattern) and --link. Exit code 0 after an
    orderly stop, or with --drain when everything is upstream; 1 when a link has failed, or a topic could not be forwarded.
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
