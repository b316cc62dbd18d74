"""`triolog explain`: the server's walk through its indexes to a time or an offset, drawn as a tree, or as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text
from rich.tree import Tree

from ...protocol.types import TimeRange, TopicPartition
from ..pictures.option import one_way_to_print, svg_option, write_picture
from .terminal.output import count_text, draw, json_option, print_json, size_text, timezone_option
from .terminal.places import TIME_HELP, read_time, read_time_or_special
from .terminal.remote import ServerAddress, server_option
from .terminal.shapes import ask
from .terminal.times import Zone, format_time
from .terminal.walk_words import answer_text, question, reads_text, warmth

if TYPE_CHECKING:
    from ..client.admin import Admin


@click.command
@click.argument("topic")
@click.option("--partition", type=click.IntRange(0), help="One partition; without it all of them.")
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


MAX_READS_SHOWN: Final = 8


def walk_tree(partition: str, walk: dict[str, Any], zone: Zone) -> Tree:
    """A tree from the question over each segment looked into to the answer."""
    asked = walk.get("asked", {})
    tree = Tree(Text(f"{partition}: {question(asked, zone)}", style="bold"))
    count, start, end = walk.get("segment_count", 0), walk.get("log_start_offset"), walk.get("high_watermark")
    tree.add(f"log: {count_text(count, 'segment')}, offsets {start} up to {end} (exclusive)")
    for segment in walk.get("segments", ()):
        _add_segment(tree, segment, asked, zone)
    if skipped := walk.get("segments_skipped"):
        tree.add(f"{count_text(skipped, 'segment')} passed over: no timestamp of theirs lies in the range")
    if not walk.get("segments"):
        tree.add(f"log: scanned{reads_text(walk)}" if walk.get("reads") else "no segment needed to be looked into")
    tree.add(Text(answer_text(walk.get("answer", {}), asked, zone), style="bold green"))
    return tree


def _add_segment(tree: Tree, segment: dict[str, Any], asked: dict[str, Any], zone: Zone) -> None:
    kind = ", active" if segment.get("is_active") else ""
    largest = f"largest timestamp {format_time(segment.get('max_timestamp', -1), zone)}"
    if "runs" in segment:
        least = segment.get("least_timestamp", -1)
        smallest = "not known yet" if least < 0 else format_time(least, zone)
        reason = f", least {smallest}; {size_text(segment['run_bytes'])} in {count_text(segment['runs'], 'run')} of batches"
    else:
        reason = "" if "offset" in asked else ", which is not before the time asked for"
    head = f"segment {segment.get('segment', 0):020d} (number {segment.get('number')}{kind}): "
    branch = tree.add(Text(f"{head}{size_text(segment.get('size_bytes', 0))}, {largest}{reason}", style="cyan"))
    if (index := segment.get("time_index")) is not None:
        found = f"timestamp {format_time(index.get('timestamp', -1), zone)} -> offset {index.get('offset')}"
        branch.add(_index_line("time index", index, f"greatest entry not after it: {found}"))
    if (index := segment.get("offset_index")) is not None:
        found = f"offset {index.get('offset')} -> position {index.get('position')}"
        branch.add(_index_line("offset index", index, f"greatest entry up to offset {index.get('looked_up')}: {found}"))
    reads = segment.get("reads", ())
    if not segment.get("cached", True) and all(read["cached"] for read in reads):
        branch.add("an index had no map in memory and was mapped for this lookup")
    scan = branch.add(f"log: scanned{reads_text(segment)}")
    for read in reads[:MAX_READS_SHOWN]:
        stop = read["position"] + read["bytes"]
        scan.add(f"bytes {read['position']} to {stop}: {size_text(read['bytes'])}, {warmth(read['cached'])}")
    if len(reads) > MAX_READS_SHOWN:
        scan.add(f"and {len(reads) - MAX_READS_SHOWN} more reads")


def _index_line(name: str, index: dict[str, Any], found: str) -> str:
    slot, entries = index.get("slot", -1), index.get("entries", 0)
    if slot < 0:
        return f"{name}: none of {count_text(entries, 'entry', 'entries')} is low enough, so from the start of the segment"
    return f"{name}: slot {slot} of {entries}; {found}"
