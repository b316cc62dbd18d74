"""The progress and the members of a share group by partition, for `triolog groups describe` (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..terminal.output import draw, printable, table
from ..terminal.shapes import NOT_KNOWN, columns, fields, known

if TYPE_CHECKING:
    from ....protocol.native.messages import DescribedGroup, SharedPartition

SHARE: Final = "share"
COLUMNS: Final = columns(
    *("<topic", ">partition", ">start offset", ">end offset", ">lag", ">in flight", "<deliveries", ">members")
)


def share_entries(group: DescribedGroup) -> list[dict[str, Any]]:
    """Its partitions for programs. `deliveries`: how many records that are not done were given how often."""
    return [
        {
            **fields(each, "topic", "partition"),
            **{name: known(value) for name, value in fields(each, "start_offset", "end_offset", "lag").items()},
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
    offsets = (number(known(each)) for each in (shared.start_offset, shared.end_offset, shared.lag))
    readers = len(_members(group, shared))
    return (
        printable(shared.topic),
        str(shared.partition),
        *offsets,
        f"{shared.in_flight:,}",
        deliveries or NOT_KNOWN,
        f"{readers:,}",
    )


def number(value: int | None) -> str:
    """`1,234`, or `-` where there is none."""
    return NOT_KNOWN if value is None else f"{value:,}"


def _members(group: DescribedGroup, shared: SharedPartition) -> list[str]:
    """Ids of the members that are to read it."""
    place = (shared.topic, shared.partition)
    return [
        member.member_id for member in group.members if any((each.topic, each.partition) == place for each in member.assignment)
    ]
