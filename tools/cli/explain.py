"""`triolog explain`: the server's walk through its indexes to a time or an offset, drawn as a tree, or as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...protocol.types import TimeRange, TopicPartition
from ..pictures.option import one_way_to_print, svg_option, write_picture
from .terminal.output import draw, json_option, print_json, timezone_option
from .terminal.places import POSITION_HELP, position_option, read_position, time_range
from .terminal.remote import ServerAddress, server_option
from .terminal.shapes import ask
from .terminal.times import Zone
from .terminal.walk_tree import walk_tree

if TYPE_CHECKING:
    from ..client.admin import Admin
    from ..client.procedures.topics import Place


@click.command
@click.argument("topic")
@click.option("-p", "--partition", type=click.IntRange(0), metavar="N", help="Only this partition.  [default: all]")
@position_option("-o", "--offset", times=("--at", "--from"), help=f"{POSITION_HELP}, or max (the largest timestamp).")
@position_option("--until", times=("--to",), help="Show the search for the records from --offset until this time.")
@timezone_option
@server_option
@svg_option
@json_option
def command(
    topic: str,
    partition: int | None,
    offset: str | None,
    until: str | None,
    zone: Zone,
    server: ServerAddress,
    svg: str | None,
    as_json: bool,
) -> None:
    """Show how the server finds a position in TOPIC, or with --until the records of a range of times.

    The output names the segment, the slots of the time index and the offset index, the bytes that were read, whether they were
    cached, and the result. --json prints the server's response, --svg draws it beside all segments over time.
    """
    one_way_to_print(svg, as_json)
    if offset is until is None:
        raise click.UsageError("give a position to find: --offset POSITION, or --offset TIME --until TIME")
    start, end = (None if text is None else read_position(text, zone, "--offset") for text in (offset, until))

    async def explained(admin: Admin) -> list[tuple[TopicPartition, dict[str, Any]]]:
        from ..client.procedures.topics import AtOffset, Shifted

        partitions = await _partitions(admin, topic, partition, needs_one=end is None and isinstance(start, AtOffset))
        found = []
        for name in partitions:
            place: Place | TimeRange = start if end is None and start is not None else time_range(start, end)
            if isinstance(place, Shifted):
                place = AtOffset((await admin.offsets(name, place))[name])
            found.append((name, await admin.explain(name, place, with_segments=svg is not None)))
        return found

    walks = ask(server, explained)
    if as_json:
        print_json([{"topic": name.topic, "partition": name.partition, "walk": walk} for name, walk in walks])
        return
    if svg is not None:
        from ..pictures.walk_picture import walk_picture

        write_picture(svg, walk_picture([(str(name), walk) for name, walk in walks], zone))
        return

    draw(*(walk_tree(str(name), walk, zone) for name, walk in walks))


async def _partitions(admin: Any, topic: str, partition: int | None, *, needs_one: bool) -> list[TopicPartition]:
    if partition is not None:
        return [TopicPartition(topic, partition)]
    described = await admin.describe_topic(topic)
    if needs_one and len(described.partitions) > 1:
        raise click.UsageError(f"{topic} has {len(described.partitions)} partitions. Choose one with --partition N")
    return [TopicPartition(topic, part.partition) for part in described.partitions]
