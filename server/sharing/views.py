"""Views of share groups' partitions for people and tests: offsets, the members that hold records and for how long, and
delivery counts (KIP-932). Reading changes nothing.

While no member of a group reads, its view is the stored state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import attrs

from ...protocol.coordinator.share_group_records import NO_START_OFFSET
from ...protocol.errors import RequestError
from ...protocol.types import Isolation, TopicPartition
from ..groups.assigned.values import Partitions
from ..logs.topics import Topics
from ..loop.waiting import deadline_now_ms
from ..system.clock import NowMs
from .partitions import SharePartitions
from .state.partition_state import SharePartitionState
from .state.values import RecordState, ShareKey


@attrs.frozen(kw_only=True)
class SharedRecords:
    """Equal records at consecutive offsets, both ends included."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int
    member_id: str | None = None
    """Who has them."""
    lock_ends_ms: int | None = None
    """By the server's wall clock."""

    @property
    def count(self) -> int:
        return self.last_offset - self.first_offset + 1


@attrs.frozen(kw_only=True)
class SharePartitionView:
    """A partition as a share group reads it."""

    topic_partition: TopicPartition
    start_offset: int | None
    """The first offset that is not done; None: nobody has looked yet where the group begins."""
    end_offset: int | None
    """High watermark of the log; None: it is offline."""
    records: Sequence[SharedRecords] = ()
    """From the start offset on, by offset; without those that nobody was given."""

    @property
    def acquired_count(self) -> int:
        """Records that members have."""
        return sum(each.count for each in self.records if each.state is RecordState.ACQUIRED)

    @property
    def lag(self) -> int | None:
        """Records that are not done."""
        if self.start_offset is None or self.end_offset is None:
            return None
        done = sum(each.count for each in self.records if each.state.is_terminal)
        return max(0, self.end_offset - self.start_offset - done)

    @property
    def deliveries(self) -> dict[int, int]:
        """Number of unfinished records by delivery count."""
        counted = Counter[int]()
        for each in self.records:
            if not each.state.is_terminal:
                counted[each.delivery_count] += each.count
        return dict(sorted(counted.items()))


@attrs.frozen(eq=False, repr=False)
class ShareViews:
    """See the module. It owns nothing."""

    _partitions_of: Callable[[str], Partitions]
    """The partitions that a group has a share state of, by group."""
    _shares: SharePartitions
    _topics: Topics
    _wall_ms: NowMs

    def keys(self, group: str) -> list[ShareKey]:
        """Return the partitions that a group has a share state of, by topic and number; none for an unknown group."""
        named = []
        for topic_id, number in self._partitions_of(group):
            try:
                named.append((self._topics.name_of(topic_id), number, ShareKey(group, topic_id, number)))
            except RequestError:  # deleted
                continue
        return [key for *_, key in sorted(named)]

    def view(self, key: ShareKey) -> SharePartitionView:
        """Raises RequestError: the topic is gone, or the stored state cannot be read."""
        return self._view(key, self._state(key))

    def stored_view(self, key: ShareKey) -> SharePartitionView:
        """`view` of the stored state, which remains when members leave and when the server ends. Raises RequestError."""
        return self._view(key, self._stored(key))

    def _view(self, key: ShareKey, state: SharePartitionState | None) -> SharePartitionView:
        topic_partition = TopicPartition(self._topics.name_of(key.topic_id), key.partition)
        return SharePartitionView(
            topic_partition=topic_partition,
            start_offset=None if state is None else state.start_offset,
            end_offset=self._end_offset(topic_partition),
            records=() if state is None else self._records(state),
        )

    def reads_committed(self, group: str) -> bool:
        """Return whether members of a group get committed records only: `share.isolation.level`."""
        return self._shares.config_of(group).isolation is Isolation.READ_COMMITTED

    def _state(self, key: ShareKey) -> SharePartitionState | None:
        share = self._shares.find(key)
        return self._stored(key) if share is None else share.state

    def _stored(self, key: ShareKey) -> SharePartitionState | None:
        stored = self._shares.stored(key)
        if stored is None or stored.start_offset == NO_START_OFFSET:
            return None
        return SharePartitionState.restored(stored.start_offset, stored.batches)

    def _end_offset(self, topic_partition: TopicPartition) -> int | None:
        try:
            return self._topics.actor(topic_partition).snapshot().high_watermark
        except RequestError:
            return None

    def _records(self, state: SharePartitionState) -> Sequence[SharedRecords]:
        behind_ms = self._wall_ms() - deadline_now_ms()
        return tuple(
            SharedRecords(
                first_offset=run.first,
                last_offset=run.last,
                state=run.state,
                delivery_count=run.delivery_count,
                member_id=run.member,
                lock_ends_ms=None if run.deadline_ms is None else run.deadline_ms + behind_ms,
            )
            for run in state.runs()
            if run.delivery_count or run.state.is_terminal
        )
