"""`triolog explain`: the server's walk through its indexes to a time or an offset, drawn as a tree, or as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...protocol.types import TimeRange, TopicPartition
from ..pictures.option import one_way_to_print, svg_option, write_picture
from .terminal.output import draw, json_option, print_json, timezone_option
from .terminal.places import TIME_HELP, read_time, read_time_or_special
from .terminal.remote import ServerAddress, server_option
from .terminal.shapes import ask
from .terminal.times import Zone
from .terminal.walk_tree import walk_tree

if TYPE_CHECKING:
    from ..client.admin import Admin


@click.command
@click.argument("topic")
@click.option("-p", "--partition", type=click.IntRange(0), help="One partition; without it all of them.")
@click.option("--at", metavar="TIME", help=f"{TIME_HELP}; or earliest, latest, max (timestamp).")
@click.option("--from", "from_time", metavar="TIME", help="How are records from this time on found?")
@click.option("--to", "to_time", metavar="TIME", help="And until before this one?")
@click.option("--offset", type=click.IntRange(0), help="Where is the batch that holds this offset?")
@timezone_option
@server_option
@svg_option
@json_option
def command(
    topic: str,
    partition: int | None,
    at: str | None,
    from_time: str | None,
    to_time: str | None,
    offset: int | None,
    zone: Zone,
    server: ServerAddress,
    svg: str | None,
    as_json: bool,
) -> None:
    """Show how the server finds --at TIME, --offset N or the records --from TIME --to TIME in TOPIC.

    Which segment, which slots of the time index and the offset index, which bytes it read, whether they were cached,
    and the answer. --json gives the walk as the server tells it, --svg draws it beside all segments over time.
    """
    one_way_to_print(svg, as_json)
    is_range = from_time is not None or to_time is not None
    if [at is not None, offset is not None, is_range].count(True) != 1:
        raise click.UsageError("say what to look up: either --at TIME, --offset N, or --from TIME and --to TIME")
    timestamp = None if at is None else read_time_or_special(at, zone, "--at")
    times = TimeRange()
    if from_time is not None:
        times = times._replace(start=read_time(from_time, zone, "--from"))
    if to_time is not None:
        times = times._replace(end=read_time(to_time, zone, "--to"))

    async def explained(admin: Admin) -> list[tuple[TopicPartition, dict[str, Any]]]:
        from ..client.procedures.topics import AtOffset, AtTime, Place

        partitions = await _partitions(admin, topic, partition, offset)
        place: Place | TimeRange = times
        if not is_range:
            place = AtOffset(offset) if offset is not None else AtTime(timestamp or 0)
        return [(name, await admin.explain(name, place, with_segments=svg is not None)) for name in partitions]

    walks = ask(server, explained)
    if as_json:
        print_json([{"topic": name.topic, "partition": name.partition, "walk": walk} for name, walk in walks])
        return
    if svg is not None:
        from ..pictures.walk_picture import walk_picture

        write_picture(svg, walk_picture([(str(name), walk) for name, walk in walks], zone))
        return

    draw(*(walk_tree(str(name), walk, zone) for name, walk in walks))


async def _partitions(admin: Any, topic: str, partition: int | None, offset: int | None) -> list[TopicPartition]:
    if partition is not None:
        return [TopicPartition(topic, partition)]
    described = await admin.describe_topic(topic)
    if offset is not None and len(described.partitions) > 1:
        raise click.UsageError(f"{topic} has {len(described.partitions)} partitions; say with --partition which one")
    return [TopicPartition(topic, part.partition) for part in described.partitions]
