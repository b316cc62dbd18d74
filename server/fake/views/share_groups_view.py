"""`broker.share_groups`: what share groups have begun in partitions, and who has it until when (KIP-932)."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import attrs

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.types import TopicPartition
from ...broker import Broker, RecordState, SharedRecords, SharePartitionView
from ..faults.rules import hint
from ..values import some
from .fault_views import PATIENCE_S, look_until
from .log_view import check_topic, count_records


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

    def __repr__(self) -> str:
        return "ShareGroupsView()"

    def groups(self) -> dict[str, str]:
        """The state of each share group that there is."""
        share = self.core().groups.share
        return {each: share.state_of(each).value for each in share.group_ids()}

    def partitions(self, group: str, topic: str | None = None) -> list[SharePartitionView]:
        """The partitions that a group reads, or has read, with everything in flight."""
        if topic is not None:
            check_topic(self.core(), topic)
        views = self.core().share_views
        found = [views.view(key) for key in views.keys(group)]
        return [each for each in found if topic in (None, each.topic_partition.topic)]

    def start_offsets(self, group: str, topic: str | None = None) -> dict[TopicPartition, int]:
        """The first offset that is not done, of each partition that somebody has looked at."""
        found = self.partitions(group, topic)
        return {each.topic_partition: each.start_offset for each in found if each.start_offset is not None}

    def locks(self, group: str, topic: str | None = None) -> list[LockView]:
        """Return the record locks that members hold now."""
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
        """Return delivery counts of records that are not done, by offset."""
        return {
            offset: each.delivery_count
            for view in self.partitions(group, topic)
            if view.topic_partition.partition == partition
            for each in view.records
            if not each.state.is_terminal
            for offset in range(each.first_offset, each.last_offset + 1)
        }

    def in_state(self, group: str, topic: str, state: str, *, partition: int = 0) -> list[int]:
        """Offsets from the start offset on that are `available` again, `acquired`, `acknowledged`, `archiving` (given up, and
        not in the dead-letter queue yet) or `archived`. Raises ValueError for another state."""
        if state.upper() not in RecordState.__members__:
            raise ValueError(f"unknown record state {state!r}{hint(state, (each.name.lower() for each in RecordState))}")
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
        """Return the assigned partitions of each member. Raises GROUP_ID_NOT_FOUND."""
        core = self.core()
        return {
            each.member_id: tuple(core.topics.named_partitions(each.assignment))
            for each in core.groups.share.describe(group).members
        }

    def lag(self, group: str, topic: str | None = None) -> int:
        """Offsets that are not done, of the partitions that a member has read. Raises GROUP_ID_NOT_FOUND."""
        self._check_group(group)
        return sum(each.lag or 0 for each in self.partitions(group, topic))

    def _check_group(self, group: str) -> None:
        if (error := self._unknown(group)) is not None:
            raise RequestError(error, ErrorCode.GROUP_ID_NOT_FOUND)

    def _unknown(self, group: str) -> str | None:
        """Return an error message about a group that may be misspelt; None for a known share group."""
        core = self.core()
        is_known = group in core.groups.share or bool(core.share_views.keys(group))
        return None if is_known else f"there is no share group {group!r}{hint(group, self.groups())}"

    async def wait_done(self, group: str, topic: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until a group has done all records of a topic, and this is stored: it stays so when the members leave. Where the
        group reads committed records only, the others are not waited for. Raises TimeoutError, UnknownTopicOrPartitionError."""
        behind: dict[int, int | None] = {}

        async def look() -> bool | None:
            nonlocal behind
            found = await self._undone(group, topic)
            behind = {number: count for number, count in found.items() if count != 0}
            return True if found and not behind else None

        def missing() -> str:
            unknown = self._unknown(group)
            return f"{f'{unknown}. ' if unknown else ''}group {group} has not done {behind} of {topic} (partition: records)"

        await look_until(look, timeout_s, missing)

    async def _undone(self, group: str, topic: str) -> dict[int, int | None]:
        """By partition the records that are not stored as done; None: no member has read there yet, and it has records."""
        core = self.core()
        check_topic(core, topic)
        committed_only, found = core.share_views.reads_committed(group), dict[int, int | None]()
        for key in core.share_views.keys(group):
            view = core.share_views.stored_view(key)
            if view.topic_partition.topic != topic:
                continue
            if view.start_offset is None:
                found[key.partition] = None if view.end_offset else 0
                continue
            found[key.partition] = await count_records(
                core,
                view.topic_partition,
                view.start_offset,
                committed_only=committed_only,
                leaves_out=_holder([each for each in view.records if each.state.is_terminal]),
            )
        return found

    def as_json(self, group: str, topic: str | None = None) -> dict[str, Any]:
        """Everything, as the control port answers it. Raises GROUP_ID_NOT_FOUND."""
        told = self.core().groups.share.describe(group)
        assigned = self.assignments(group)
        return {
            "state": told.state.value,
            "members": [
                {**some(each, "member_id client_id"), "partitions": [place._asdict() for place in assigned[each.member_id]]}
                for each in told.members
            ],
            "partitions": [_partition(each) for each in self.partitions(group, topic)],
        }


def _holder(done: Sequence[SharedRecords]) -> Callable[[int], bool]:
    """Return a function that reports whether an offset is in one of these sorted ranges."""
    firsts = [each.first_offset for each in done]

    def holds(offset: int) -> bool:
        index = bisect.bisect_right(firsts, offset) - 1
        return index >= 0 and offset <= done[index].last_offset

    return holds


def _partition(view: SharePartitionView) -> dict[str, Any]:
    return {
        **view.topic_partition._asdict(),
        **some(view, "start_offset end_offset lag"),
        "records": [{**attrs.asdict(each), "state": each.state.name.lower()} for each in view.records],
    }
