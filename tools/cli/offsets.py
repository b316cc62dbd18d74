"""`triolog offsets`: the offset that a time has in every partition of some topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...protocol.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from .terminal.output import draw, json_option, print_json, table, timezone_option
from .terminal.places import TIME_HELP, read_time_or_special
from .terminal.remote import ServerAddress, server_option
from .terminal.shapes import ask, columns
from .terminal.times import Zone, format_time

if TYPE_CHECKING:
    from ...protocol.native.messages import OffsetsForTimesPartitionResponse
    from ..client.admin import Admin


@click.command
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--at", default="latest", show_default=True, metavar="TIME", help=f"{TIME_HELP}; or earliest, latest, max (timestamp)."
)
@timezone_option
@server_option
@json_option
def command(topics: tuple[str, ...], at: str, zone: Zone, server: ServerAddress, as_json: bool) -> None:
    """Look up the first record at or after a time in each partition of TOPIC...

    latest is the high watermark: the offset of the record that comes next. earliest is the log start offset, max the
    first record that has the largest timestamp. A partition without such a record has no offset (null in JSON).
    """
    timestamp = read_time_or_special(at, zone, "--at")

    async def look_up(admin: Admin) -> dict[TopicPartition, OffsetsForTimesPartitionResponse]:
        described = [await admin.describe_topic(topic) for topic in dict.fromkeys(topics)]
        partitions = [TopicPartition(topic.name, part.partition) for topic in described for part in topic.partitions]
        return await admin.offsets_for_times(dict.fromkeys(partitions, timestamp))

    found = ask(server, look_up)
    if as_json:
        print_json([_entry(answer, zone) for answer in found.values()])
        return
    title = at.lower() if timestamp < 0 else f"first records at or after {format_time(timestamp, zone)}"
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
