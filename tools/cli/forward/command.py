"""`triolog forward`: hand records on to a Kafka upstream; and the commands that ask and tell links that run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from ..terminal.grammar import Group
from .asking import drain, pause, reset, resume
from .running import process_options, run
from .status import status, top

if TYPE_CHECKING:
    from ...forward.link import Link
    from ...forward.memory import Wishes
    from ...forward.process.place import LinkPlace
    from ...forward.settings.link_settings import LinkSettings


@click.group(cls=Group, invoke_without_command=True)
@process_options("forward")
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
    from ...forward.settings.forward_settings import FORWARD
    from .options import open_source, settings_of

    with run(FORWARD, options, settings_of, drain=options["drains"]) as (settings, run_links):
        from ...forward.link import Claims, Link
        from ...forward.memory import TopicIds
        from ...forward.upstream.connection import LIBRDKAFKA

        if options["log_level"] == "debug":
            LIBRDKAFKA.setLevel(logging.DEBUG)
        claims = Claims()
        with open_source(settings, options["from_dir"]) as opener:

            def make(link: LinkSettings, place: LinkPlace, wishes: Wishes) -> Link:
                return Link(link, settings.node, opener, wishes, claims, topic_ids=TopicIds(place.topics))

            run_links(make)
