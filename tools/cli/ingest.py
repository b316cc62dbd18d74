"""`triolog ingest`: store messages of an MQTT broker or lines of files; and the commands that ask and tell links that run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from .forward.asking import pause, resume
from .forward.running import process_options, run, with_process_options
from .forward.status import status, top
from .terminal.grammar import Group

if TYPE_CHECKING:
    from ..forward.link_loop import LinkLoop
    from ..forward.memory import Wishes
    from ..forward.process.place import LinkPlace
    from ..ingest.file_settings import FileLink
    from ..ingest.settings import IngestLink, IngestSettings

FILE: Final = click.Path(exists=True, dir_okay=False)
ONE_LINK: Final = ("name", "broker", "protocol", "qos", "client_id", "tls", "ca_file", "cert_file", "dead_letter_topic")
"""Options of a single link, by its keys."""


@click.group(cls=Group)
@click.option("--state-dir", type=click.Path(file_okay=False), help="State directory of the links.")
@click.pass_context
def command(ctx: click.Context, /, state_dir: str | None) -> None:
    """Store messages of an MQTT broker or lines of files, and watch and pause the links that do so."""
    ctx.ensure_object(dict).update(kind="ingest", state_dir=state_dir)


@command.command
@process_options("ingest")
@click.option("--broker", metavar="HOST:PORT", help="MQTT broker.")
@click.option("--name", metavar="NAME", help="Name of the link: part of its client id and transactional id.")
@click.option(
    "--map", "maps", multiple=True, metavar="FILTER=TOPIC", help="Topic filter, and topic of the records (repeatable)."
)
@click.option("--key", metavar="KEY", help="Key of the records: a level such as {2}, or a JSON pointer.")
@click.option("--timestamp", metavar="POINTER", help="JSON pointer to the time.  [default: time of arrival]")
@click.option("--qos", type=click.IntRange(0, 2), help="QoS of the subscriptions.  [default: 1]")
@click.option("--protocol", type=click.Choice(["5", "3.1.1"]), help="Version of MQTT.  [default: 5]")
@click.option("--client-id", metavar="ID", help="Client id at the broker.  [default: triolog-NAME]")
@click.option("--tls", is_flag=True, default=None, help="Use TLS with the broker.")
@click.option("--ca-file", type=FILE, help="PEM file with the CAs of the broker.  [default: the system's]")
@click.option("--cert-file", type=FILE, help="PEM file with a certificate of your own for the broker.")
@click.option("--broker-user", metavar="USER", help="User at the broker.")
@click.option("--broker-password-file", type=FILE, help="File with the password of that user.")
@click.option("--dead-letter-topic", metavar="NAME", help="Topic for messages that cannot be stored as mapped.")
def mqtt(**options: Any) -> None:
    """Store the messages of an MQTT broker until SIGTERM. On SIGHUP it reads --config again.

    The links come from --config. Or give one link with --broker, --name and --map. A message is acknowledged to the broker when
    its record is durable. Exit code 0 after a clean shutdown; 1 when a link has failed.
    """
    _run(options, _settings_of)


@command.command
@process_options("ingest")
@click.option("--name", metavar="NAME", help="Name of the link: part of its transactional id.")
@click.option("--topic", metavar="TOPIC", help="Topic of the records.")
@click.option(
    "--exclude", multiple=True, metavar="GLOB", help="File names to leave out (repeatable).  [default: rotated files]"
)
@click.option("--max-line-bytes", type=click.IntRange(1), help="Largest line.  [default: 900000]")
@click.option("--dead-letter-topic", metavar="NAME", help="Topic for lines that cannot be stored.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
def files(**options: Any) -> None:
    """Store the lines of files and follow them until SIGTERM. On SIGHUP it reads --config again.

    PATH is a file, a directory or a glob in quotes. Each line is one record, with the path as its key. A transaction stores
    lines and positions: each line is stored exactly once, over kills and rotation. Read with read_committed. Exit code 0 after
    a clean shutdown; 1 when a link has failed.

    \b
    triolog ingest files --name web --topic access /var/log/nginx/access.log
    triolog ingest files --name logs --topic logs '/var/log/**/*.log'
    """
    _run(options, _file_settings_of)


def _run(options: dict[str, Any], settings_of: Callable[[dict[str, Any]], IngestSettings]) -> None:
    from ..ingest.settings import INGEST

    with run(INGEST, options, settings_of) as (settings, run_links):
        from ..ingest.file_ingest import FileIngest
        from ..ingest.file_settings import FileLink
        from ..ingest.file_store import FileStore
        from ..ingest.ingest import Ingest
        from ..ingest.store import Store
        from .forward.options import server_access

        tls, login = server_access(settings)

        def make(link: IngestLink | FileLink, place: LinkPlace, wishes: Wishes) -> LinkLoop:
            if isinstance(link, FileLink):
                return FileIngest(link, lambda link: FileStore(link, settings.server, tls, login), wishes)
            return Ingest(link, lambda link: Store(link, settings.server, tls, login), wishes)

        run_links(make)


for _each in (status, top, pause, resume):
    command.add_command(_each)


def _settings_of(options: dict[str, Any]) -> IngestSettings:
    """Raises SettingsError, or a usage error."""
    from ..ingest.settings import INGEST, IngestSettings

    given = {key: options[key] for key in ONE_LINK if options[key] is not None}
    maps = [_map(options, text) for text in options["maps"]]
    file = options["config_file"] or options["server_config"]
    if file is not None:
        if given or maps:
            raise click.UsageError("--config already has links. Leave out the options of a single link")
        values = INGEST.read_file(file, is_servers=options["server_config"] is not None)
    elif not maps or "broker" not in given or "name" not in given:
        raise click.UsageError("nothing to ingest. Give --broker, --name and --map, or --config FILE")
    else:
        given |= {"map": maps} | ({} if options["broker_user"] is None else {"user": options["broker_user"]})
        if options["broker_password_file"] is not None:
            given["password"] = {"file": options["broker_password_file"]}
        values = {"links": (INGEST.read_link("the command line", given),)}
    return IngestSettings(**with_process_options(values, options))


def _file_settings_of(options: dict[str, Any]) -> IngestSettings:
    """Raises SettingsError, or a usage error."""
    from ..ingest.settings import INGEST, IngestSettings

    given = {key: options[key] for key in ("name", "topic", "max_line_bytes", "dead_letter_topic") if options[key] is not None}
    given |= {key: list(options[name]) for key, name in (("files", "paths"), ("exclude", "exclude")) if options[name]}
    if options["config_file"] is not None:
        if given:
            raise click.UsageError("--config already has links. Leave out the paths and options of a single link")
        values = INGEST.read_file(options["config_file"])
    elif not {"name", "topic", "files"} <= given.keys():
        raise click.UsageError("nothing to ingest. Give --name, --topic and a PATH, or --config FILE")
    else:
        values = {"links": (INGEST.read_link("the command line", given),)}
    return IngestSettings(**with_process_options(values, options))


def _map(options: dict[str, Any], text: str) -> dict[str, str]:
    name, equals, topic = text.rpartition("=")
    if not equals:
        raise click.UsageError(f"--map {text!r} is not FILTER=TOPIC")
    more = {key: options[key] for key in ("key", "timestamp") if options[key] is not None}
    return {"filter": name, "topic": topic, **more}
