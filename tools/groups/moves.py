"""Where a group goes on when it is reset, and what that means for it.

As Kafka's tool: an offset that the log does not have becomes the nearest that it has, and a group with members is refused: they
would go on where they are and commit over it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.types import TopicPartition
from ..client.admin import Admin
from ..client.procedures.topics import Place
from .offsets import Bounds, bounds_of


class ResetError(Exception):
    """A group cannot be reset so; the message says why."""


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


def plan_moves(targets: Mapping[TopicPartition, int], current: Mapping[TopicPartition, int], bounds: Bounds) -> list[Move]:
    """The wanted offsets, within what the logs have."""
    return [
        Move(
            partition, current.get(partition), min(max(wanted, bounds[partition][0]), bounds[partition][1]), *bounds[partition]
        )
        for partition, wanted in sorted(targets.items())
    ]


async def check_no_members(admin: Admin, group: str) -> None:
    """Raises ResetError."""
    (described,) = await admin.describe_groups(group)
    if described.error is not None and described.error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        raise described.error
    if described.members:
        raise ResetError(
            f"group {group!r} is {described.state} and has {len(described.members)} members; stop them before it is reset"
        )


async def moves(admin: Admin, group: str, topic: str | None, partitions: Collection[int], target: int | Place) -> list[Move]:
    """To a place, or so many records on or back; of a topic, or of all that the group has offsets for. Raises ResetError."""
    current = {partition: kept.offset for partition, kept in (await admin.group_offsets(group)).items()}
    topics = {partition.topic for partition in current} if topic is None else {topic}
    if not topics:
        raise ResetError(f"group {group!r} has no offsets; name a TOPIC")
    bounds = await bounds_of(admin, topics)
    if topic is not None and not bounds:
        await admin.describe_topic(topic)  # says why
    if missing := set(partitions) - {partition.partition for partition in bounds}:
        raise ResetError(f"{topic} has no partition {min(missing)}")
    wanted = {
        partition
        for partition in bounds
        if (not partitions or partition.partition in partitions) and (topic is not None or partition in current)
    }
    if isinstance(target, int):
        if nowhere := sorted(wanted - current.keys()):
            raise ResetError(f"group {group!r} has no offset for {nowhere[0]} that could be shifted; --to says where to begin")
        targets = {partition: current[partition] + target for partition in wanted}
    else:
        targets = {}
        for name in sorted({partition.topic for partition in wanted}):
            found = await admin.offsets(name, target)
            targets |= {partition: offset for partition, offset in found.items() if partition in wanted}
    return plan_moves(targets, current, bounds)
