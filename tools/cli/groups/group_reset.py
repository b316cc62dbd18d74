"""`triolog groups reset`: let a group read on from another place. Shows what it would do; `--execute` does it.

As Kafka's tool: an offset that the log does not have becomes the nearest that it has, and a group with members is refused: they
would go on where they are and commit over it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ....protocol.errors import ErrorCode
from ....protocol.types import TopicPartition
from ..terminal.failures import FailedError
from ..terminal.output import draw, json_option, print_json, say, table, timezone_option
from ..terminal.places import TIME_HELP, read_offset, read_time
from ..terminal.remote import ServerAddress, call_server, server_option
from ..terminal.times import Zone
from .group_offsets import Bounds, bounds_of, number

if TYPE_CHECKING:
    from ...client.admin import Admin
    from ...client.connection import Client
    from ...client.procedures.topics import Place


class Move(NamedTuple):
    """Where a group is in a partition (None: nowhere), and where it is to be."""

    partition: TopicPartition
    current: int | None
    offset: int
    log_start_offset: int
    high_watermark: int

    @property
    def lag(self) -> int:
        return self.high_watermark - self.offset

    def entry(self) -> dict[str, Any]:
        """For programs."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "current": self.current,
            "offset": self.offset,
            "high_watermark": self.high_watermark,
            "lag": self.lag,
        }

    def row(self) -> tuple[str, ...]:
        """For people."""
        numbers = (self.current, self.offset, self.high_watermark, self.lag)
        return self.partition.topic, str(self.partition.partition), *map(number, numbers)


def plan_moves(targets: Mapping[TopicPartition, int], current: Mapping[TopicPartition, int], bounds: Bounds) -> list[Move]:
    """The wanted offsets, within what the logs have."""
    return [
        Move(
            partition, current.get(partition), min(max(wanted, bounds[partition][0]), bounds[partition][1]), *bounds[partition]
        )
        for partition, wanted in sorted(targets.items())
    ]


@click.command("reset")
@click.argument("group")
@click.argument("topic", required=False)
@click.option("--all-topics", is_flag=True, help="Every topic that the group has committed offsets for.")
@click.option("--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one; may be repeated.")
@click.option("--to", "to_offset", metavar="N|earliest|latest", help="Read on from this offset.")
@click.option("--to-time", metavar="TIME", help=f"Read on from the first record at or after: {TIME_HELP}.")
@click.option("--shift", type=int, metavar="N", help="Go so many records on, or back when it is negative.")
@click.option("--execute", is_flag=True, help="Do it; without this it is only shown.")
@timezone_option
@server_option
@json_option
def command(
    group: str,
    topic: str | None,
    all_topics: bool,
    partitions: tuple[int, ...],
    to_offset: str | None,
    to_time: str | None,
    shift: int | None,
    execute: bool,
    zone: Zone,
    server: ServerAddress,
    as_json: bool,
) -> None:
    """Let GROUP read TOPIC on from another place, forwards or backwards. A group that is not there is made."""
    if (topic is None) is not all_topics:
        raise click.UsageError("name a TOPIC, or all that the group has offsets for with --all-topics")
    if partitions and topic is None:
        raise click.UsageError("--partition belongs to one TOPIC")
    target = _read_target(to_offset, to_time, shift, zone)

    async def call(client: Client) -> list[Move]:
        from ...client.admin import Admin

        admin = Admin(client)
        await _check_no_members(admin, group)
        moves = await _moves(admin, group, topic, partitions, target)
        if execute:
            await admin.commit_group_offsets(group, {move.partition: move.offset for move in moves})
        return moves

    moves = call_server(server, call)
    if as_json:
        print_json({"group": group, "executed": execute, "offsets": [move.entry() for move in moves]})
        return
    columns = {"topic": "left", "partition": "right", "now at": "right", "goes to": "right"}
    draw(table(columns | {"high watermark": "right", "lag": "right"}, [move.row() for move in moves], title=f"group {group}"))
    if not execute:
        say("nothing was changed; --execute does it")


def _read_target(to_offset: str | None, to_time: str | None, shift: int | None, zone: Zone) -> int | Place:
    from ...client.procedures.topics import AtTime

    if [to_offset, to_time, shift].count(None) != 2:
        raise click.UsageError("--to N, --to-time TIME or --shift N says where to; give one of them")
    if to_offset is not None:
        return read_offset(to_offset, "--to")
    return AtTime(read_time(to_time, zone, "--to-time")) if to_time is not None else shift or 0


async def _check_no_members(admin: Admin, group: str) -> None:
    (described,) = await admin.describe_groups(group)
    if described.error is not None and described.error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        raise described.error
    if described.members:
        raise FailedError(
            f"group {group!r} is {described.state} and has {len(described.members)} members; stop them before it is reset"
        )


async def _moves(admin: Admin, group: str, topic: str | None, partitions: Collection[int], target: int | Place) -> list[Move]:
    current = {partition: kept.offset for partition, kept in (await admin.group_offsets(group)).items()}
    topics = {partition.topic for partition in current} if topic is None else {topic}
    if not topics:
        raise FailedError(f"group {group!r} has no offsets; name a TOPIC")
    bounds = await bounds_of(admin, topics)
    if topic is not None and not bounds:
        await admin.describe_topic(topic)  # says why
    if missing := set(partitions) - {partition.partition for partition in bounds}:
        raise FailedError(f"{topic} has no partition {min(missing)}")
    wanted = {
        partition
        for partition in bounds
        if (not partitions or partition.partition in partitions) and (topic is not None or partition in current)
    }
    if isinstance(target, int):
        if nowhere := sorted(wanted - current.keys()):
            raise FailedError(f"group {group!r} has no offset for {nowhere[0]} that could be shifted; --to says where to begin")
        targets = {partition: current[partition] + target for partition in wanted}
    else:
        targets = {}
        for name in sorted({partition.topic for partition in wanted}):
            found = await admin.offsets(name, target)
            targets |= {partition: offset for partition, offset in found.items() if partition in wanted}
    return plan_moves(targets, current, bounds)
