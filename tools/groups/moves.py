"""Plans and applies resets of a group's committed offsets, and shows their effect.

It follows Kafka's tool. An offset outside the log becomes the nearest one in the log. A group with members is refused: they
would continue at their positions and commit over the reset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.native.messages import DescribedGroup
from ...protocol.types import NO_OFFSET, TopicPartition
from ..client.admin import Admin
from ..client.procedures.topics import Place
from .offsets import Bounds, bounds_of

SHARE: Final = "share"
"""The type of groups that commit no offsets: what they have not done is theirs to be given (KIP-932)."""


class ResetError(Exception):
    """A group cannot be reset so; the message says why."""


class Move(NamedTuple):
    """A reset of a group in a partition: its `current` offset (None: no committed offset) and its new `offset`."""

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


def plan_moves(
    targets: Mapping[TopicPartition, int], current: Mapping[TopicPartition, int | None], bounds: Bounds
) -> list[Move]:
    """The wanted offsets, within what the logs have."""
    return [
        Move(
            partition, current.get(partition), min(max(wanted, bounds[partition][0]), bounds[partition][1]), *bounds[partition]
        )
        for partition, wanted in sorted(targets.items())
    ]


async def resettable(admin: Admin, group: str) -> DescribedGroup:
    """A group that nobody is a member of, or that is not there yet. Raises ResetError."""
    (described,) = await admin.describe_groups(group)
    if described.error is not None and described.error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        raise described.error
    if described.members:
        raise ResetError(
            f"group {group!r} is {described.state} and has {len(described.members)} members; stop them before it is reset"
        )
    return described


async def _positions(admin: Admin, group: DescribedGroup) -> dict[TopicPartition, int | None]:
    """Return the committed offset of each partition. For a share group it is the start offset, None before the first read."""
    if group.type == SHARE:
        starts = ((each.topic_partition, each.start_offset) for each in group.shared)
        return {partition: None if start == NO_OFFSET else start for partition, start in starts}
    return {partition: kept.offset for partition, kept in (await admin.group_offsets(group.group)).items()}


async def moves(
    admin: Admin, group: DescribedGroup, topic: str | None, partitions: Collection[int], target: int | Place
) -> list[Move]:
    """To a place, or so many records on or back; of a topic, or of all that the group has offsets for. Raises ResetError."""
    current = await _positions(admin, group)
    topics = {partition.topic for partition in current} if topic is None else {topic}
    if not topics:
        raise ResetError(f"group {group.group!r} has no offsets; name a TOPIC")
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
        known = {partition: offset for partition, offset in current.items() if offset is not None}
        if nowhere := sorted(wanted - known.keys()):
            raise ResetError(f"group {group.group!r} has no offset for {nowhere[0]} to shift. Give --offset POSITION instead")
        targets = {partition: known[partition] + target for partition in wanted}
    else:
        targets = {}
        for name in sorted({partition.topic for partition in wanted}):
            found = await admin.offsets(name, target)
            targets |= {partition: offset for partition, offset in found.items() if partition in wanted}
    return plan_moves(targets, current, bounds)


async def reset(admin: Admin, group: DescribedGroup, offsets: Mapping[TopicPartition, int]) -> None:
    """Let a group go on at these offsets. Raises the first error of a partition, after all were tried."""
    if group.type == SHARE:
        await admin.alter_share_group_offsets(group.group, offsets)
    else:
        await admin.commit_group_offsets(group.group, offsets)
