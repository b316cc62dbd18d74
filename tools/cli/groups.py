"""`triolog groups`: what groups have committed, and how far behind the end of the log that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ...protocol.errors import ErrorCode
from ...protocol.types import TopicPartition
from .failures import FailedError
from .output import count_text, draw, json_option, print_json, say, table, timezone_option
from .places import TIME_HELP, read_place
from .questions import confirmed
from .remote import ServerAddress, call_server, server_option
from .times import Zone

if TYPE_CHECKING:
    from ..client.connection import Client


class GroupOffset(NamedTuple):
    """What a group has committed for a partition; the log's bounds are None when the partition is gone or offline."""

    partition: TopicPartition
    offset: int
    metadata: str | None
    log_start_offset: int | None
    high_watermark: int | None

    @property
    def lag(self) -> int | None:
        """Records that the group has not read yet."""
        if self.high_watermark is None or self.log_start_offset is None:
            return None
        return max(0, self.high_watermark - max(self.offset, self.log_start_offset))


@click.group
def command() -> None:
    """List, show, reset and delete groups: names under which consumers keep how far they are."""


@command.command("list")
@server_option
@json_option
def list_groups(server: ServerAddress, as_json: bool) -> None:
    """List all groups."""

    async def call(client: Client) -> list[str]:
        from ..client.admin import Admin

        return await Admin(client).list_groups()

    groups = call_server(server, call)
    if as_json:
        print_json(groups)
    elif groups:
        draw(table({"group": "left"}, [(group,) for group in groups]))
    else:
        say(f"{server} has no groups; `triolog consume TOPIC --group NAME` makes one")


@command.command
@click.argument("group")
@server_option
@json_option
def show(group: str, server: ServerAddress, as_json: bool) -> None:
    """Show what GROUP has committed for each partition, and its lag."""

    async def call(client: Client) -> list[GroupOffset]:
        return await _offsets(client, group)

    offsets = call_server(server, call)
    if not offsets:
        raise FailedError(f"there is no group {group!r}; `triolog groups list` names them")
    if as_json:
        print_json([_entry(each) for each in offsets])
        return
    columns = {"topic": "left", "partition": "right", "offset": "right", "high watermark": "right", "lag": "right"}
    columns |= {"note": "left"} if any(each.metadata for each in offsets) else {}
    draw(table(columns, [_row(each)[: len(columns)] for each in offsets], title=f"group {group}"))


@command.command
@click.argument("group")
@click.argument("topic")
@click.option("--to", "to_offset", metavar="N|earliest|latest", help="Read on from this offset.")
@click.option("--to-time", metavar="TIME", help=f"Read on from the first record at or after: {TIME_HELP}.")
@click.option("--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one; may be repeated.")
@timezone_option
@server_option
@json_option
def reset(
    group: str,
    topic: str,
    to_offset: str | None,
    to_time: str | None,
    partitions: tuple[int, ...],
    zone: Zone,
    server: ServerAddress,
    as_json: bool,
) -> None:
    """Let GROUP read TOPIC on from another place, forwards or backwards. A group that is not there is made."""
    place = read_place(to_offset, to_time, zone, options=("--to", "--to-time"), purpose="where to")

    async def call(client: Client) -> list[GroupOffset]:
        from ..client.admin import Admin

        admin = Admin(client)
        targets = await admin.offsets(topic, place)
        wanted = {partition: offset for partition, offset in targets.items() if not partitions or partition[1] in partitions}
        if missing := set(partitions) - {partition for _, partition in wanted}:
            raise FailedError(f"{topic} has no partition {min(missing)}")
        await admin.commit_group_offsets(group, wanted)
        return [each for each in await _offsets(client, group) if each.partition in wanted]

    offsets = call_server(server, call)
    if as_json:
        print_json([_entry(each) for each in offsets])
        return
    columns = {"topic": "left", "partition": "right", "offset": "right", "high watermark": "right", "lag": "right"}
    draw(table(columns, [_row(each)[: len(columns)] for each in offsets], title=f"group {group}"))


@command.command
@click.argument("group")
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_option
@json_option
def delete(group: str, yes: bool, server: ServerAddress, as_json: bool) -> None:
    """Delete GROUP and what it has committed."""

    async def look(client: Client) -> list[GroupOffset]:
        return await _offsets(client, group)

    async def call(client: Client) -> None:
        from ..client.admin import Admin

        await Admin(client).delete_groups(group)

    offsets = call_server(server, look)
    if not yes and offsets and not confirmed(f"Delete group {group} with {count_text(len(offsets), 'offset')}?"):
        raise FailedError(f"{group} was not deleted; --yes deletes without asking")
    call_server(server, call)
    if as_json:
        print_json({"group": group, "deleted": True, "offsets": len(offsets)})
    else:
        say(f"deleted group {group}")


async def _offsets(client: Client, group: str) -> list[GroupOffset]:
    """By partition; each topic is asked for once."""
    from ...protocol.errors import RequestError
    from ..client.admin import Admin

    admin = Admin(client)
    committed = await admin.group_offsets(group)
    bounds: dict[TopicPartition, tuple[int, int]] = {}
    for topic in sorted({partition.topic for partition in committed}):
        try:
            described = await admin.describe_topic(topic)
        except RequestError as exc:
            if exc.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            continue
        for part in described.partitions:
            if part.error is None:
                bounds[TopicPartition(topic, part.partition)] = part.log_start_offset, part.high_watermark
    return [
        GroupOffset(partition, kept.offset, kept.metadata, *bounds.get(partition, (None, None)))
        for partition, kept in sorted(committed.items())
    ]


def _entry(each: GroupOffset) -> dict[str, Any]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "offset": each.offset,
        "high_watermark": each.high_watermark,
        "lag": each.lag,
        "metadata": each.metadata or None,
    }


def _row(each: GroupOffset) -> tuple[str, ...]:
    bounds = [f"{number:,}" if number is not None else "-" for number in (each.high_watermark, each.lag)]
    return each.partition.topic, str(each.partition.partition), f"{each.offset:,}", *bounds, each.metadata or ""
