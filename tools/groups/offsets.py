"""Committed offsets of a group, with the bounds of the logs and the members that read them; and resets: planned, shown with
their effect, and applied.

A reset follows Kafka's tool. An offset outside the log becomes the nearest one in the log. A group with members is refused:
they would continue at their positions and commit over the reset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.native.messages import DescribedGroup, GroupMember
from ...protocol.types import NO_OFFSET, TopicPartition
from ..client.admin import Admin
from ..client.procedures.groups import CommittedOffset
from ..client.procedures.topics import Place

Bounds = dict[TopicPartition, tuple[int, int]]
"""(log start offset, high watermark) of partitions that are served."""


class GroupOffset(NamedTuple):
    """The progress of a group in a partition. `offset` is None when the group has not committed one. The bounds of the log are
    None when the partition is deleted or offline."""

    partition: TopicPartition
    offset: int | None
    metadata: str | None
    log_start_offset: int | None
    high_watermark: int | None

    @property
    def lag(self) -> int | None:
        """Records that the group has not read yet."""
        if self.offset is None or self.high_watermark is None or self.log_start_offset is None:
            return None
        return max(0, self.high_watermark - max(self.offset, self.log_start_offset))

    @property
    def unread(self) -> int | None:
        """Records of a partition without a committed offset, where `auto.offset.reset` of the consumer decides."""
        if self.offset is not None or self.high_watermark is None or self.log_start_offset is None:
            return None
        return self.high_watermark - self.log_start_offset

    def entry(self) -> dict[str, Any]:
        """For programs."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "offset": self.offset,
            "high_watermark": self.high_watermark,
            "lag": self.lag,
            "metadata": self.metadata or None,
        }


async def bounds_of(admin: Admin, topics: Iterable[str]) -> Bounds:
    """Of the partitions of these topics; each topic is asked for once, and one that is gone is left out."""
    bounds: Bounds = {}
    for topic in sorted(set(topics)):
        try:
            described = await admin.describe_topic(topic)
        except RequestError as exc:
            if exc.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            continue
        for part in described.partitions:
            if part.error is None:
                bounds[TopicPartition(topic, part.partition)] = part.log_start_offset, part.high_watermark
    return bounds


async def group_offsets(admin: Admin, group: str, assigned: Iterable[TopicPartition] = ()) -> list[GroupOffset]:
    """Return all partitions of the topics in which the group has a committed offset or a member reads."""
    committed = await admin.group_offsets(group)
    wanted = {*committed, *assigned}
    bounds = await bounds_of(admin, [partition.topic for partition in wanted])
    found = []
    for partition in sorted(wanted | bounds.keys()):
        kept = committed.get(partition)
        offset, metadata = (None, None) if kept is None else kept
        found.append(GroupOffset(partition, offset, metadata, *bounds.get(partition, (None, None))))
    return found


async def group_lags(admin: Admin, groups: Iterable[str]) -> dict[str, int]:
    """Records that each group has not read yet, of all its partitions together; each topic is asked for once. Groups without
    offsets that count, and those that the server does not tell of, are left out."""
    committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for group in groups:
        try:
            committed[group] = await admin.group_offsets(group)
        except RequestError as exc:
            if exc.retriable:
                raise
    bounds = await bounds_of(admin, {partition.topic for offsets in committed.values() for partition in offsets})
    lags: dict[str, int] = {}
    for group, offsets in committed.items():
        for partition, kept in offsets.items():
            lag = GroupOffset(partition, *kept, *bounds.get(partition, (None, None))).lag
            if lag is not None:
                lags[group] = lags.get(group, 0) + lag
    return lags


def readers_of(group: DescribedGroup) -> dict[TopicPartition, GroupMember]:
    """Return the member that reads each partition."""
    return {
        TopicPartition(assigned.topic, assigned.partition): member for member in group.members for assigned in member.assignment
    }


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
            f"group {group!r} is {described.state} and has {len(described.members)} members. Stop them before the reset"
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
        raise ResetError(f"group {group.group!r} has no offsets. Give a TOPIC")
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
