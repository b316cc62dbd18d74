"""`broker.share_groups`: what share groups have begun in partitions, and who has it until when (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import attrs

from ....protocol.types import TopicPartition
from ...broker import Broker, RecordState, SharePartitionView
from ..waiting import PATIENCE_S, look_until


class LockView(NamedTuple):
    """Records that a member has, both ends included. `ends_ms` is by the broker's clock, as `broker.clock.now_ms()` is."""

    topic_partition: TopicPartition
    first_offset: int
    last_offset: int
    member_id: str
    delivery_count: int
    ends_ms: int


@attrs.frozen(eq=False, repr=False)
class ShareGroupsView:
    """Raises RequestError where the broker would answer one; of a group that nobody knows there is nothing."""

    core: Callable[[], Broker]

    def groups(self) -> dict[str, str]:
        """The state of each share group that there is."""
        share = self.core().groups.share
        return {each: share.state_of(each).value for each in share.group_ids()}

    def partitions(self, group: str, topic: str | None = None) -> list[SharePartitionView]:
        """The partitions that a group reads, or has read, with everything in flight."""
        views = self.core().share_views
        found = [views.view(key) for key in views.keys(group)]
        return [each for each in found if topic in (None, each.topic_partition.topic)]

    def start_offsets(self, group: str, topic: str | None = None) -> dict[TopicPartition, int]:
        """The first offset that is not done, of each partition that somebody has looked at."""
        found = self.partitions(group, topic)
        return {each.topic_partition: each.start_offset for each in found if each.start_offset is not None}

    def locks(self, group: str, topic: str | None = None) -> list[LockView]:
        """What members have now."""
        return [
            LockView(
                view.topic_partition,
                each.first_offset,
                each.last_offset,
                each.member_id,
                each.delivery_count,
                each.lock_ends_ms,
            )
            for view in self.partitions(group, topic)
            for each in view.records
            if each.member_id is not None and each.lock_ends_ms is not None
        ]

    def delivery_counts(self, group: str, topic: str, *, partition: int = 0) -> dict[int, int]:
        """How often records were given that are not done, by offset."""
        return {
            offset: each.delivery_count
            for view in self.partitions(group, topic)
            if view.topic_partition.partition == partition
            for each in view.records
            if not each.state.is_terminal
            for offset in range(each.first_offset, each.last_offset + 1)
        }

    def in_state(self, group: str, topic: str, state: str, *, partition: int = 0) -> list[int]:
        """Offsets behind the start offset that are `available` again, `acquired`, `acknowledged` or `archived`."""
        wanted = RecordState[state.upper()]
        return [
            offset
            for view in self.partitions(group, topic)
            if view.topic_partition.partition == partition
            for each in view.records
            if each.state is wanted
            for offset in range(each.first_offset, each.last_offset + 1)
        ]

    def assignments(self, group: str) -> dict[str, tuple[TopicPartition, ...]]:
        """What each member is to read. Raises GROUP_ID_NOT_FOUND."""
        core = self.core()
        return {
            each.member_id: tuple(core.topics.named_partitions(each.assignment))
            for each in core.groups.share.describe(group).members
        }

    def lag(self, group: str, topic: str | None = None) -> int:
        """Records that are not done, of the partitions that somebody has looked at."""
        return sum(each.lag or 0 for each in self.partitions(group, topic))

    async def wait_done(self, group: str, topic: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until a group has done everything that is there, and what it said of it is stored. Raises TimeoutError."""
        behind: dict[int, int | None] = {}

        async def look() -> bool | None:
            nonlocal behind
            found = self.partitions(group, topic)
            behind = {each.topic_partition.partition: each.lag for each in found if each.lag != 0 and each.end_offset}
            return True if found and not behind else None

        await look_until(look, timeout_s, lambda: f"group {group} has not done {behind} of {topic} (partition: records)")

    def as_json(self, group: str, topic: str | None = None) -> dict[str, Any]:
        """Everything, as the control port answers it. Raises GROUP_ID_NOT_FOUND."""
        told = self.core().groups.share.describe(group)
        assigned = self.assignments(group)
        return {
            "state": told.state.value,
            "members": [
                {"member_id": each.member_id, "client_id": each.client_id, "partitions": _places(assigned[each.member_id])}
                for each in told.members
            ],
            "partitions": [_partition(each) for each in self.partitions(group, topic)],
        }


def _places(partitions: tuple[TopicPartition, ...]) -> list[dict[str, Any]]:
    return [each._asdict() for each in partitions]


def _partition(view: SharePartitionView) -> dict[str, Any]:
    return {
        **view.topic_partition._asdict(),
        "start_offset": view.start_offset,
        "end_offset": view.end_offset,
        "lag": view.lag,
        "records": [
            {
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
                "state": each.state.name.lower(),
                "delivery_count": each.delivery_count,
                "member_id": each.member_id,
                "lock_ends_ms": each.lock_ends_ms,
            }
            for each in view.records
        ],
    }
