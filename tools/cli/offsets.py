"""`triolog offsets`: the offset that a time has in every partition of some topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...protocol.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from .terminal.output import draw, print_json, table, timezone_option
from .terminal.places import POSITION_HELP, position_option, read_position, time_of
from .terminal.remote import ServerAddress
from .terminal.shapes import ask, asks_server, columns
from .terminal.times import Zone, format_time

if TYPE_CHECKING:
    from ...protocol.native.messages import OffsetsForTimesPartitionResponse
    from ..client.admin import Admin


@click.command
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@position_option(
    *("-o", "--offset", "position"),
    times=("--at",),
    default="end",
    show_default=True,
    help=f"{POSITION_HELP}, or max (the largest timestamp).",
)
@timezone_option
@asks_server
def command(topics: tuple[str, ...], position: str, zone: Zone, server: ServerAddress, as_json: bool) -> None:
    """Look up the offset of a position in each partition of TOPIC...

    end is the high watermark: the offset of the next record. start is the log start offset, max the first record with the
    largest timestamp. A partition without a record at or after a time has no offset (null in JSON).
    """
    from ..client.procedures.topics import AtTime

    place = read_position(position, zone, "--offset")

    async def look_up(admin: Admin) -> dict[TopicPartition, OffsetsForTimesPartitionResponse]:
        if not isinstance(place, AtTime):
            from ...protocol.native.messages import OffsetsForTimesPartitionResponse as Answer

            located = [each for topic in dict.fromkeys(topics) for each in (await admin.offsets(topic, place)).items()]
            return {partition: Answer(*partition, None, offset, NO_TIMESTAMP) for partition, offset in located}
        described = [await admin.describe_topic(topic) for topic in dict.fromkeys(topics)]
        partitions = [TopicPartition(topic.name, part.partition) for topic in described for part in topic.partitions]
        return await admin.offsets_for_times(dict.fromkeys(partitions, place.timestamp))

    found = ask(server, look_up)
    if as_json:
        print_json([_entry(answer, zone) for answer in found.values()])
        return
    time_ms = time_of(place)
    title = position.lower() if time_ms is None else f"first records at or after {format_time(time_ms, zone)}"
    headings = columns("<topic", ">partition", ">offset", "<timestamp", ">ms")
    draw(table(headings, [_row(answer, zone) for answer in found.values()], title=title))


def _entry(answer: OffsetsForTimesPartitionResponse, zone: Zone) -> dict[str, Any]:
    has_timestamp = answer.timestamp != NO_TIMESTAMP
    return {
        "topic": answer.topic,
        "partition": answer.partition,
        "offset": None if answer.offset == NO_OFFSET else answer.offset,
        "timestamp": answer.timestamp if has_timestamp else None,
        "time": format_time(answer.timestamp, zone) if has_timestamp else None,
    }


def _row(answer: OffsetsForTimesPartitionResponse, zone: Zone) -> tuple[str, ...]:
    offset = "none" if answer.offset == NO_OFFSET else str(answer.offset)
    milliseconds = "-" if answer.timestamp == NO_TIMESTAMP else str(answer.timestamp)
    return answer.topic, str(answer.partition), offset, format_time(answer.timestamp, zone), milliseconds
