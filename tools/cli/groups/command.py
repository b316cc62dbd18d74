"""`triolog groups`: who is in a group, what it has committed, and how far behind the end of the log that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from ....protocol.errors import ErrorCode
from ..terminal.failures import FailedError
from ..terminal.output import count_text, draw, json_option, print_json, printable, say, table
from ..terminal.questions import confirmed
from ..terminal.remote import ServerAddress, call_server, server_option
from .group_reset import command as reset
from .numbers import number
from .share_group import SHARE, draw_share, share_entries

if TYPE_CHECKING:
    from ....protocol.native.messages import DescribedGroup, GroupMember
    from ...client.admin import Admin
    from ...client.connection import Client
    from ...groups.offsets import GroupOffset

DESCRIBED_AT_A_TIME: Final = 1000
OFFSET_COLUMNS: Final = {
    "topic": "left",
    "partition": "right",
    "offset": "right",
    "high watermark": "right",
    "lag": "right",
}


@click.group
def command() -> None:
    """List, describe, reset and delete groups: consumers that share topics, and how far they are."""


@command.command("list")
@server_option
@json_option
def list_groups(server: ServerAddress, as_json: bool) -> None:
    """List all groups of every kind, with their states."""

    async def call(client: Client) -> list[DescribedGroup]:
        from ...client.admin import Admin

        admin = Admin(client)
        return await _described(admin, await admin.list_groups())

    groups = call_server(server, call)
    if as_json:
        print_json([_group_entry(each) for each in groups])
    elif groups:
        columns = {"group": "left", "state": "left", "type": "left", "members": "right"}
        draw(table(columns, [(printable(each.group), each.state, each.type, f"{len(each.members):,}") for each in groups]))
    else:
        say(f"{server} has no groups; `triolog consume TOPIC --group NAME` makes one")


async def _described(admin: Admin, names: Sequence[str]) -> list[DescribedGroup]:
    found = []
    for start in range(0, len(names), DESCRIBED_AT_A_TIME):
        found += await admin.describe_groups(*names[start : start + DESCRIBED_AT_A_TIME])
    return [each for each in found if each.error is None or each.error.code is not ErrorCode.GROUP_ID_NOT_FOUND]


@command.command
@click.argument("group")
@server_option
@json_option
def describe(group: str, server: ServerAddress, as_json: bool) -> None:
    """Show GROUP's state, where it is in each partition, its lag, and who reads it.

    Of a share group: from where on records are not done, how many members have, and how often those were given.
    """

    async def call(client: Client) -> tuple[DescribedGroup, list[GroupOffset]]:
        from ...client.admin import Admin
        from ...groups.offsets import group_offsets, readers_of

        admin = Admin(client)
        described = await _one(admin, group)
        if described.type == SHARE:
            return described, []
        return described, await group_offsets(admin, group, readers_of(described))

    described, offsets = call_server(server, call)
    if described.type == SHARE:
        _show_share(described, as_json)
        return
    from ...groups.offsets import readers_of

    readers = readers_of(described)
    if as_json:
        entries = [{**each.entry(), **_reader_entry(readers.get(each.partition))} for each in offsets]
        print_json({**_group_entry(described), "offsets": entries})
        return
    say(_summary(described))
    columns = dict(OFFSET_COLUMNS)
    notes = any(each.metadata for each in offsets)
    columns |= {"member": "left", "host": "left"} if readers else {}
    columns |= {"note": "left"} if notes else {}
    rows = []
    for each in offsets:
        reader = readers.get(each.partition)
        reading = (printable(reader.member_id), printable(reader.client_host)) if reader else ("-", "-")
        note = (printable(each.metadata or ""),) if notes else ()
        rows.append((*_offset_row(each), *(reading if readers else ()), *note))
    draw(table(columns, rows))


def _show_share(group: DescribedGroup, as_json: bool) -> None:
    if as_json:
        members = [_member_entry(each) for each in group.members]
        print_json({**_group_entry(group), "partitions": share_entries(group), "members": members})
        return
    say(_summary(group))
    draw_share(group)
    _draw_members(group)


@command.command
@click.argument("group")
@server_option
@json_option
def members(group: str, server: ServerAddress, as_json: bool) -> None:
    """Show GROUP's members and what each of them reads."""

    async def call(client: Client) -> DescribedGroup:
        from ...client.admin import Admin

        return await _one(Admin(client), group)

    described = call_server(server, call)
    if as_json:
        print_json({**_group_entry(described), "members": [_member_entry(each) for each in described.members]})
        return
    say(_summary(described))
    _draw_members(described)


def _draw_members(group: DescribedGroup) -> None:
    if group.members:
        columns = {"member": "left", "instance": "left", "client": "left", "host": "left", "partitions": "left"}
        draw(table(columns, [_member_row(each) for each in group.members]))


@command.command
@click.argument("group")
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_option
@json_option
def delete(group: str, yes: bool, server: ServerAddress, as_json: bool) -> None:
    """Delete GROUP and what it has committed. One that has members is not deleted."""

    async def look(client: Client) -> int:
        from ...client.admin import Admin
        from ...groups.offsets import group_offsets

        admin = Admin(client)
        (described,) = await admin.describe_groups(group)
        return len(described.shared) if described.type == SHARE else len(await group_offsets(admin, group))

    async def call(client: Client) -> None:
        from ...client.admin import Admin

        await Admin(client).delete_groups(group)

    offsets = call_server(server, look)
    if not yes and offsets and not confirmed(f"Delete group {group} with {count_text(offsets, 'offset')}?"):
        raise FailedError(f"{group} was not deleted; --yes deletes without asking")
    call_server(server, call)
    if as_json:
        print_json({"group": group, "deleted": True, "offsets": offsets})
    else:
        say(f"deleted group {group}")


command.add_command(reset)


async def _one(admin: Admin, group: str) -> DescribedGroup:
    (described,) = await admin.describe_groups(group)
    if described.error is None:
        return described
    if described.error.code is ErrorCode.GROUP_ID_NOT_FOUND:
        raise FailedError(f"there is no group {group!r}; `triolog groups list` names them")
    raise described.error


def _summary(group: DescribedGroup) -> str:
    protocol = f", {group.protocol}" if group.protocol else ""
    return f"group {printable(group.group)}: {group.state}, {group.type}{protocol}, {count_text(len(group.members), 'member')}"


def _group_entry(group: DescribedGroup) -> dict[str, Any]:
    return {
        "group": group.group,
        "state": group.state,
        "type": group.type,
        "protocol": group.protocol or None,
        "member_count": len(group.members),
    }


def _offset_row(offset: GroupOffset) -> tuple[str, ...]:
    place = offset.partition
    return place.topic, str(place.partition), *map(number, (offset.offset, offset.high_watermark, offset.lag))


def _reader_entry(member: GroupMember | None) -> dict[str, Any]:
    if member is None:
        return {"member_id": None, "client_id": None, "client_host": None}
    return {"member_id": member.member_id, "client_id": member.client_id, "client_host": member.client_host}


def _member_entry(member: GroupMember) -> dict[str, Any]:
    assigned = [{"topic": each.topic, "partition": each.partition} for each in member.assignment]
    return {"group_instance_id": member.group_instance_id, **_reader_entry(member), "assignment": assigned}


def _member_row(member: GroupMember) -> tuple[str, ...]:
    by_topic: dict[str, list[str]] = {}
    for each in member.assignment:
        by_topic.setdefault(each.topic, []).append(str(each.partition))
    reads = " ".join(f"{topic}({','.join(partitions)})" for topic, partitions in by_topic.items())
    shown = (member.member_id, member.group_instance_id or "-", member.client_id, member.client_host, reads or "-")
    return tuple(map(printable, shown))
