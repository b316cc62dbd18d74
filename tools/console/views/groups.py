"""Groups of every kind: who is in them, who reads what, how far behind they are; what a reset would mean, and doing it."""

from __future__ import annotations

from typing import Any, Final

from ....protocol.errors import ErrorCode
from ....protocol.limits import INT64_MAX
from ....protocol.native.messages import DescribedGroup, GroupMember, SharedPartition
from ....protocol.types import NO_OFFSET, TopicPartition
from ...client.admin import Admin
from ...client.procedures.topics import EARLIEST, LATEST, AtOffset, AtTime, Place
from ...groups.offsets import SHARE, GroupOffset, Move, ResetError, group_lags, group_offsets, moves, readers_of, resettable
from ...groups.offsets import reset as carry_out
from ..errors import ApiError, BadParameterError
from ..routes import Call, Route, change, data, exact, page
from ..watching.watcher import now_ms

MAX_GROUPS: Final = 500
"""Of the list; a filter finds the others."""
DESCRIBED_AT_A_TIME: Final = 1000
TOLD_LAGS: Final = 200
"""Partitions of groups that `statistics` tells of, those with the largest lags; fewer are all that there are."""
POINTS: Final = 180
SPARK_POINTS: Final = 60
PLACES: Final = ("topic", "at", "to", "shift")


async def groups(call: Call) -> dict[str, Any]:
    """`q`: a part of the name. Lags are those that `statistics` tells, where it tells all; else each group is asked for its
    offsets."""
    part, admin = call.query.text("q", max_chars=300).lower(), call.watcher.admin
    await call.watcher.first_sample()
    every = await admin.list_groups()
    wanted = [name for name in every if part in name.lower()]
    described: list[DescribedGroup] = []
    shown = wanted[:MAX_GROUPS]
    for start in range(0, len(shown), DESCRIBED_AT_A_TIME):
        described += await admin.describe_groups(*shown[start : start + DESCRIBED_AT_A_TIME])
    lags = await _lags(call, described)
    rows = [_row(each, lags) for each in described if not _is_gone(each)]
    return {
        "status": call.watcher.status.to_json(),
        "total": len(every),
        "found": len(wanted),
        "q": part,
        "groups": rows,
        "history": call.watcher.history.read([f"group:{each['group']}" for each in rows], now_ms(), SPARK_POINTS),
    }


def _is_gone(group: DescribedGroup) -> bool:
    return group.error is not None and group.error.code is ErrorCode.GROUP_ID_NOT_FOUND


async def _lags(call: Call, described: list[DescribedGroup]) -> dict[str, int]:
    told = (call.watcher.statistics or {}).get("groups")
    if told is None or call.watcher.refused is not None or len(told["lags"]) >= TOLD_LAGS:
        asked = [each.group for each in described if each.error is None and each.type != SHARE]
        return await group_lags(call.watcher.admin, asked)
    lags: dict[str, int] = {}
    for each in told["lags"]:
        lags[each["group"]] = lags.get(each["group"], 0) + each["lag"]
    return lags


def _row(group: DescribedGroup, lags: dict[str, int]) -> dict[str, Any]:
    lag = lags.get(group.group)
    if group.type == SHARE:
        known = [each.lag for each in group.shared if each.lag != NO_OFFSET]
        lag = sum(known) if known else None
    return {**_summary(group), "member_count": len(group.members), "lag": lag}


def _summary(group: DescribedGroup) -> dict[str, Any]:
    return {
        "group": group.group,
        "error": None if group.error is None else group.error.message,
        "state": group.state,
        "type": group.type,
        "protocol": group.protocol,
    }


# ---- one group ---------------------------------------------------------------------------------------------------------------


async def group(call: Call) -> dict[str, Any]:
    """Return a group's partitions with lag and reader, its members, and its lag over 15 minutes.

    `uncommitted` counts partitions of its topics without a committed offset, and their records, which are no part of the lag.
    """
    admin, name = call.watcher.admin, call.path["group"]
    described = await _described(admin, name)
    readers = readers_of(described)
    offsets = [] if described.type == SHARE else await group_offsets(admin, name, readers)
    await call.watcher.first_sample()
    known = [each.lag for each in offsets if each.lag is not None] + [
        each.lag for each in described.shared if each.lag != NO_OFFSET
    ]
    unread = [each.unread for each in offsets if each.unread is not None]
    return {
        "status": call.watcher.status.to_json(),
        **_summary(described),
        "members": [_member(each) for each in described.members],
        "partitions": [_partition(each, readers.get(each.partition)) for each in offsets],
        "shared": [_shared(each) for each in described.shared],
        "lag": exact(sum(known)) if known else None,
        "uncommitted": {"partitions": len(unread), "records": exact(sum(unread))},
        "history": call.watcher.history.read([f"group:{name}"], now_ms(), POINTS),
        "can_change": call.settings.allow_changes,
    }


async def _described(admin: Admin, name: str) -> DescribedGroup:
    (described,) = await admin.describe_groups(name)
    if described.error is not None:
        raise described.error
    return described


def _member(member: GroupMember) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for each in member.assignment:
        topics.setdefault(each.topic, []).append(each.partition)
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "assignment": topics,
    }


def _partition(offset: GroupOffset, reader: GroupMember | None) -> dict[str, Any]:
    return {
        **{name: exact(value) if type(value) is int else value for name, value in offset.entry().items()},
        "log_start_offset": None if offset.log_start_offset is None else exact(offset.log_start_offset),
        "member_id": None if reader is None else reader.member_id,
        "client_id": None if reader is None else reader.client_id,
    }


def _shared(each: SharedPartition) -> dict[str, Any]:
    numbers = {"start_offset": each.start_offset, "end_offset": each.end_offset, "lag": each.lag}
    return {
        "topic": each.topic,
        "partition": each.partition,
        **{name: None if value == NO_OFFSET else exact(value) for name, value in numbers.items()},
        "in_flight": each.in_flight,
        "deliveries": {str(entry.delivery_count): entry.records for entry in each.deliveries},
    }


# ---- resetting, deleting -----------------------------------------------------------------------------------------------------


async def preview(call: Call) -> dict[str, Any]:
    """Preview a reset of `topic`, or of all topics that the group has offsets for. Nothing changes.

    The target is one of `at` (ms), `to` (`earliest`, `latest` or an offset) and `shift`.
    """
    name, topic, place = call.path["group"], call.query.text("topic", max_chars=249) or None, _place(call)
    admin = call.watcher.admin
    try:
        found = await moves(admin, await resettable(admin, name), topic, (), place)
    except ResetError as exc:
        raise ApiError(422, "CANNOT_BE_RESET", str(exc)) from exc
    told = [_move(each) for each in found]
    return {
        "group": name,
        "moves": told,
        "again": exact(sum(int(each["again"]) for each in told)),
        "skipped": exact(sum(int(each["skipped"]) for each in told)),
    }


def _place(call: Call) -> int | Place:
    query = call.query
    at, to = query.integer("at", most=INT64_MAX), query.text("to")
    shift = query.integer("shift", least=-INT64_MAX, most=INT64_MAX)
    if [at is None, not to, shift is None].count(False) != 1:
        raise BadParameterError("at", "no new position. Give one of at, to and shift")
    if at is not None:
        return AtTime(at)
    if shift is not None:
        return int(shift)
    if to in ("earliest", "latest"):
        return EARLIEST if to == "earliest" else LATEST
    return AtOffset(query.integer("to", most=INT64_MAX))


def _move(move: Move) -> dict[str, Any]:
    """`again` and `skipped` count offsets; compaction and markers leave fewer records."""
    moved = 0 if move.current is None else move.offset - move.current
    told = {name: exact(value) if type(value) is int else value for name, value in move.entry().items()}
    return told | {"again": exact(max(0, -moved)), "skipped": exact(max(0, moved))}


async def reset(call: Call) -> dict[str, Any]:
    """`{"offsets": [{"topic", "partition", "offset"}, ...]}`, as a preview has told them: what was seen is what is done."""
    name, admin = call.path["group"], call.watcher.admin
    wanted: dict[TopicPartition, int] = {}
    for each in call.field("offsets", list):
        match each:
            case {"topic": str(topic), "partition": int(partition), "offset": int() | str() as offset}:
                wanted[TopicPartition(topic, partition)] = _offset(offset)
            case _:
                raise BadParameterError("offsets", 'each is {"topic", "partition", "offset"}')
    if not wanted:
        raise BadParameterError("offsets", "none given")
    try:
        group = await resettable(admin, name)
    except ResetError as exc:
        raise ApiError(422, "CANNOT_BE_RESET", str(exc)) from exc
    await carry_out(admin, group, wanted)
    return {"group": name, "reset": len(wanted)}


def _offset(value: int | str) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise BadParameterError("offsets", f"{text[:100]!r} is not an offset")
    return int(text)


async def delete(call: Call) -> dict[str, Any]:
    """With its name typed."""
    name = call.path["group"]
    call.check_confirmed(name)
    await call.watcher.admin.delete_groups(name)
    return {"group": name, "deleted": True}


ROUTES: Final[tuple[Route, ...]] = (
    page("/groups", groups, ("q",)),
    page("/groups/{group}", group),
    data("/groups/{group}/reset", preview, PLACES),
    change("POST", "/groups/{group}/reset", reset),
    change("DELETE", "/groups/{group}", delete),
)
