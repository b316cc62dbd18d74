"""`triolog forward`: hand records on to a Kafka upstream; and the commands that ask and tell links that run."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..terminal.failures import FailedError, NotConnectedError
from .orders import drain, pause, resume
from .status import status, top

if TYPE_CHECKING:
    from ...forward.link import Link
    from ...forward.settings.forward_settings import ForwardSettings
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
FILE: Final = click.Path(exists=True, dir_okay=False)


@click.group(invoke_without_command=True)
@click.option("--config", "config_file", type=FILE, help="TOML with links: tables [[forward]].")
@click.option("--server-config", type=FILE, hidden=True, help="The same in a server's file.")
@click.option("--parent", type=int, hidden=True, help="The process that started this one: without it there is none.")
@click.option("--server", metavar="HOST:PORT", envvar="TRIOLOG_SERVER", show_envvar=True, help="The server that is read.")
@click.option("--tls-ca", type=FILE, envvar="TRIOLOG_TLS_CA", show_envvar=True, help="TLS with it: PEM with its CA.")
@click.option("--tls-cert", type=FILE, envvar="TRIOLOG_TLS_CERT", show_envvar=True, help="PEM with a certificate of your own.")
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
@click.option("--start", metavar="PLACE", help="Of topics that were never forwarded: earliest (the default), latest or a time.")
@click.option("--max-rate", metavar="BYTES", help="Cap on bytes a second.")
@click.option("--window", "windows", multiple=True, metavar="WINDOW", help="When it may send, such as 'mon-fri 22:00-06:00'.")
@click.option("--timezone", metavar="ZONE", help="Of the windows; by default the system's.")
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]))
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
@click.option("--ready-file", type=click.Path(dir_okay=False), hidden=True, help="Made when links can be asked.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Hand records on to a Kafka upstream, in order and once, until SIGTERM.

    What is forwarded comes from --config, or is one link: --to, --topics (or --pattern) and --link. Exit code 0 after an
    orderly stop, or with --drain when everything is upstream; 1 when a link has failed, or a topic could not be forwarded.
    """
    ctx.ensure_object(dict)["state_dir"] = options["state_dir"]
    if ctx.invoked_subcommand is None:
        _forward(**options)


command.add_command(status)
command.add_command(top)
command.add_command(pause)
command.add_command(resume)
command.add_command(drain)


def _forward(**options: Any) -> None:
    from ....server.service.log_lines import configure_logging
    from ...forward.errors import LinkStoppedError, SettingsError
    from ...forward.process.place import default_state_dir

    if importlib.util.find_spec("confluent_kafka") is None:
        raise click.UsageError("forwarding needs confluent_kafka: pip install 'triolog[forward]'")
    import trio

    from ...forward.process.run_links import run_links

    configure_logging(options["log_level"], as_json=options["log_format"] == "json")
    try:
        settings = _settings(options)
        state_dir = Path(settings.state_dir) if settings.state_dir else default_state_dir(os.environ)
        with _source(settings, options["from_dir"]) as open_source:
            links = trio.run(
                partial(
                    run_links,
                    settings,
                    state_dir,
                    open_source,
                    drain=options["drains"],
                    parent=options["parent"],
                    started=_ready(options["ready_file"]),
                )
            )
    except SettingsError as exc:
        raise click.UsageError(str(exc)) from exc
    except LinkStoppedError as exc:
        raise FailedError(str(exc)) from exc
    _end(links, drained=options["drains"])


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


def _settings(options: dict[str, Any]) -> ForwardSettings:
    """Raises SettingsError, or a usage error."""
    from ....server.settings.broker_config import Address
    from ...forward.settings.forward_settings import ForwardSettings, read_file, read_link

    given = {key: options[option] for option, key in ONE_LINK.items() if options[option] not in (None, ())}
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
    file = options["config_file"] or options["server_config"]
    if file is not None:
        if given or options["kafka"] or options["secrets"]:
            raise click.UsageError("--config has the links; leave out the options of a single one")
        values = read_file(file, is_servers=options["server_config"] is not None)
    else:
        if "name" not in given or "to" not in given:
            raise click.UsageError("say what is forwarded: --to, --topics and --link, or --config FILE")
        values = {"links": (read_link("the command line", {**given, "kafka": _kafka(options)}),)}
    try:
        for name in ("server", "metrics"):
            if options[name] is not None:
                values[name] = Address.parse(options[name])
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    for name in ("node", "state_dir", "tls_ca", "tls_cert"):
        if options[name] is not None:
            values[name] = options[name]
    return ForwardSettings(**values)


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


@contextlib.contextmanager
def _source(settings: ForwardSettings, from_dir: str | None) -> Iterator[Callable[[], Source]]:
    """How a link opens what it reads."""
    if from_dir is None:
        from ...client.tls import TlsConfig
        from ...forward.source.server import ServerSource

        uses_tls = settings.tls_ca is not None or settings.tls_cert is not None
        tls = TlsConfig(ca_file=settings.tls_ca, certificate_file=settings.tls_cert) if uses_tls else None
        if tls is not None:
            try:
                tls.context()
            except OSError as exc:
                raise NotConnectedError(f"--tls-ca or --tls-cert cannot be used: {exc}") from exc
        yield lambda: ServerSource(settings.server, tls)
        return
    from ...forward.settings.link_settings import Delivery
    from ...forward.source.directory import DirectorySource
    from ..terminal.stopped import stopped

    if any(link.delivery is Delivery.AT_LEAST_ONCE for link in settings.links):
        raise click.UsageError("--from-dir changes nothing in DIR, so only the upstream can note how far it is: exactly-once")
    with stopped(from_dir, writes=False) as (fs, found):
        yield lambda: DirectorySource(fs, found)
