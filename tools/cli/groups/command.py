"""`triolog groups`: who is in a group, what it has committed, and how far behind the end of the log that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from ....protocol.errors import ErrorCode
from ..terminal.failures import FailedError
from ..terminal.grammar import Group
from ..terminal.output import count_text, draw, print_json, printable, say, table
from ..terminal.remote import ServerAddress
from ..terminal.shapes import NOT_KNOWN, ask, asks_server, check_confirmed, columns, fields, yes_option
from .group_reset import command as reset
from .share_group import SHARE, draw_share, number, share_entries

if TYPE_CHECKING:
    from ....protocol.native.messages import DescribedGroup, GroupMember
    from ...client.admin import Admin
    from ...groups.offsets import GroupOffset

DESCRIBED_AT_A_TIME: Final = 1000
OFFSET_COLUMNS: Final = columns("<topic", ">partition", ">offset", ">high watermark", ">lag")


@click.group(cls=Group)
def command() -> None:
    """List, describe, reset and delete groups: members, committed offsets and lag."""


@command.command("list")
@asks_server
def list_groups(server: ServerAddress, as_json: bool) -> None:
    """List all groups of every kind, with their states."""
    groups = ask(server, _all_described)
    if as_json:
        print_json([_group_entry(each) for each in groups])
    elif groups:
        headings = columns("<group", "<state", "<type", ">members")
        draw(table(headings, [(printable(each.group), each.state, each.type, f"{len(each.members):,}") for each in groups]))
    else:
        say(f"{server} has no groups. `triolog consume TOPIC --group NAME` creates one")


async def _all_described(admin: Admin) -> list[DescribedGroup]:
    names, found = await admin.list_groups(), []
    for start in range(0, len(names), DESCRIBED_AT_A_TIME):
        found += await admin.describe_groups(*names[start : start + DESCRIBED_AT_A_TIME])
    return [each for each in found if each.error is None or each.error.code is not ErrorCode.GROUP_ID_NOT_FOUND]


@command.command
@click.argument("group")
@asks_server
def describe(group: str, server: ServerAddress, as_json: bool) -> None:
    """Show GROUP's state, and for each partition its committed offset, lag and member.

    For a share group: the first offset that is not done, the records in flight, and how often they were delivered.
    """

    async def look(admin: Admin) -> tuple[DescribedGroup, list[GroupOffset]]:
        from ...groups.offsets import group_offsets, readers_of

        described = await _one(admin, group)
        if described.type == SHARE:
            return described, []
        return described, await group_offsets(admin, group, readers_of(described))

    described, offsets = ask(server, look)
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
    notes = any(each.metadata for each in offsets)
    more = [*(["<member", "<host"] if readers else []), *(["<note"] if notes else [])]
    rows = []
    for each in offsets:
        reader = readers.get(each.partition)
        reading = (printable(reader.member_id), printable(reader.client_host)) if reader else (NOT_KNOWN, NOT_KNOWN)
        note = (printable(each.metadata or ""),) if notes else ()
        rows.append((*_offset_row(each), *(reading if readers else ()), *note))
    draw(table(OFFSET_COLUMNS | columns(*more), rows))


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
@asks_server
def members(group: str, server: ServerAddress, as_json: bool) -> None:
    """Show GROUP's members and the partitions of each."""
    described = ask(server, lambda admin: _one(admin, group))
    if as_json:
        print_json({**_group_entry(described), "members": [_member_entry(each) for each in described.members]})
        return
    say(_summary(described))
    _draw_members(described)


def _draw_members(group: DescribedGroup) -> None:
    if group.members:
        headings = columns("<member", "<instance", "<client", "<host", "<partitions")
        draw(table(headings, [_member_row(each) for each in group.members]))


@command.command
@click.argument("group")
@yes_option
@asks_server
def delete(group: str, yes: bool, server: ServerAddress, as_json: bool) -> None:
    """Delete GROUP and its committed offsets. A group with members is not deleted."""

    async def look(admin: Admin) -> int:
        (described,) = await admin.describe_groups(group)
        return len(described.shared) if described.type == SHARE else len(await admin.group_offsets(group))

    offsets = ask(server, look)
    question = f"Delete group {group} with {count_text(offsets, 'offset')}?"
    check_confirmed(yes or not offsets, question, f"{group} was not deleted; --yes deletes")
    ask(server, lambda admin: admin.delete_groups(group))
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
        raise FailedError(f"there is no group {group!r}. `triolog groups list` lists the groups")
    raise described.error


def _summary(group: DescribedGroup) -> str:
    protocol = f", {group.protocol}" if group.protocol else ""
    return f"group {printable(group.group)}: {group.state}, {group.type}{protocol}, {count_text(len(group.members), 'member')}"


def _group_entry(group: DescribedGroup) -> dict[str, Any]:
    return {
        **fields(group, "group", "state", "type"),
        "protocol": group.protocol or None,
        "member_count": len(group.members),
    }


def _offset_row(offset: GroupOffset) -> tuple[str, ...]:
    place = offset.partition
    return place.topic, str(place.partition), *map(number, (offset.offset, offset.high_watermark, offset.lag))


def _reader_entry(member: GroupMember | None) -> dict[str, Any]:
    names = ("member_id", "client_id", "client_host")
    return dict.fromkeys(names) if member is None else fields(member, *names)


def _member_entry(member: GroupMember) -> dict[str, Any]:
    assigned = [fields(each, "topic", "partition") for each in member.assignment]
    return {"group_instance_id": member.group_instance_id, **_reader_entry(member), "assignment": assigned}


def _member_row(member: GroupMember) -> tuple[str, ...]:
    by_topic: dict[str, list[str]] = {}
    for each in member.assignment:
        by_topic.setdefault(each.topic, []).append(str(each.partition))
    reads = " ".join(f"{topic}({','.join(partitions)})" for topic, partitions in by_topic.items())
    shown = (member.member_id, member.group_instance_id or "-", member.client_id, member.client_host, reads or "-")
    return tuple(map(printable, shown))
