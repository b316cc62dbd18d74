"""What a share group has begun in partitions, and who shares them, as `triolog groups describe` shows it (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol.types import NO_OFFSET
from ..terminal.output import draw, printable, table
from .numbers import number

if TYPE_CHECKING:
    from ....protocol.native.messages import DescribedGroup, SharedPartition

SHARE: Final = "share"
COLUMNS: Final = {
    "topic": "left",
    "partition": "right",
    "start offset": "right",
    "end offset": "right",
    "lag": "right",
    "in flight": "right",
    "deliveries": "left",
    "members": "right",
}


def share_entries(group: DescribedGroup) -> list[dict[str, Any]]:
    """Its partitions for programs. `deliveries`: how many records that are not done were given how often."""
    return [
        {
            "topic": each.topic,
            "partition": each.partition,
            "start_offset": _known(each.start_offset),
            "end_offset": _known(each.end_offset),
            "lag": _known(each.lag),
            "in_flight": each.in_flight,
            "deliveries": {str(entry.delivery_count): entry.records for entry in each.deliveries},
            "members": _members(group, each),
        }
        for each in group.shared
    ]


def draw_share(group: DescribedGroup) -> None:
    """Its partitions for people."""
    draw(table(COLUMNS, [_row(group, each) for each in group.shared]))


def _row(group: DescribedGroup, shared: SharedPartition) -> tuple[str, ...]:
    deliveries = ", ".join(f"{entry.records:,} x {entry.delivery_count}" for entry in shared.deliveries)
    offsets = (number(_known(each)) for each in (shared.start_offset, shared.end_offset, shared.lag))
    readers = len(_members(group, shared))
    return (
        printable(shared.topic),
        str(shared.partition),
        *offsets,
        f"{shared.in_flight:,}",
        deliveries or "-",
        f"{readers:,}",
    )


def _known(value: int) -> int | None:
    return None if value == NO_OFFSET else value


def _members(group: DescribedGroup, shared: SharedPartition) -> list[str]:
    """Ids of the members that are to read it."""
    place = (shared.topic, shared.partition)
    return [
        member.member_id for member in group.members if any((each.topic, each.partition) == place for each in member.assignment)
    ]
