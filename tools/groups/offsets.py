"""Committed offsets of a group, with the bounds of the logs and the members that read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.native.messages import DescribedGroup, GroupMember
from ...protocol.types import TopicPartition
from ..client.admin import Admin
from ..client.procedures.groups import CommittedOffset

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
