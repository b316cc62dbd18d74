"""The view of a reader of a log: the log's offsets and segments at one moment. The log creates it, see `log`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import attrs

from ....protocol.limits import MAX_DECOMPRESSED_BYTES
from ....protocol.types import Isolation, TopicPartition
from ..disk.diskops import Procedure
from ..segments.segment_view import SegmentView
from .gaps import OffsetGap
from .leader_epochs import EpochEntry


@attrs.frozen
class LogSnapshot:
    """A log at one moment, for readers. It costs nothing to keep and nothing of it ever changes.

    Files can be deleted or cut under it; the operation on them then raises SnapshotExpiredError and the reader takes a
    new snapshot.
    """

    topic_partition: TopicPartition
    log_start_offset: int
    last_stable_offset: int
    """Where committed reads end: the first offset of the earliest transaction that is not decided yet."""
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    earliest_epoch: int
    """Epoch of the log start offset, -1 when it is not known."""
    inactive: tuple[SegmentView, ...]
    active: SegmentView
    bases: tuple[int, ...]
    """Base offsets of `inactive`."""
    largest_timestamps: tuple[int, ...]
    """For each of `inactive`: the largest timestamp of it and all before it, hence ascending."""
    readable_segment: int
    """Base offset of the segment in which the high watermark lies."""
    readable_position: int
    """Position in it where the high watermark lies: bytes before are readable."""
    truncations: int
    """How often the log was cut back before: bytes behind a cut are others in a later snapshot."""
    gaps: tuple[OffsetGap, ...] = ()
    """Offsets whose records were damaged on disk and taken out, ascending."""
    refused_gaps: tuple[OffsetGap, ...] = ()
    """Those of them that readers are refused, unless they say themselves what they want (topic key gap.policy)."""
    leader_epochs: tuple[EpochEntry, ...] = ()
    check_crcs: bool = False
    """Whether readers check what they answer (topic key fetch.check.crcs)."""
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES

    def __len__(self) -> int:
        return len(self.inactive) + 1

    def segment(self, slot: int) -> SegmentView:
        return self.active if slot == len(self.inactive) else self.inactive[slot]

    def slot_of(self, offset: int) -> int:
        """Slot of the segment with the greatest base offset <= `offset`, -1 when it lies before the first."""
        if offset >= self.active.base_offset:
            return len(self.inactive)
        return bisect_right(self.bases, offset) - 1

    def slot_reaching(self, timestamp: int) -> int:
        """Slot of the first segment whose largest timestamp is >= `timestamp`; `len(self)` when none has one."""
        slot = bisect_left(self.largest_timestamps, timestamp)
        if slot == len(self.inactive) and self.active.max_timestamp < timestamp:
            return slot + 1
        return slot

    def readable_end(self, slot: int) -> int:
        """Position up to which the segment's bytes lie below the high watermark."""
        view = self.segment(slot)
        if view.base_offset < self.readable_segment:
            return view.size
        return self.readable_position if view.base_offset == self.readable_segment else 0

    def end_offset(self, isolation: Isolation) -> int:
        """Return the end of a reader's view, exclusive."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark

    def end_position(self, slot: int, isolation: Isolation) -> Procedure[int]:
        """Position up to which the segment's bytes lie before `end_offset`."""
        stable = self.last_stable_offset
        if isolation is Isolation.READ_UNCOMMITTED or stable == self.high_watermark:
            return self.readable_end(slot)
        last_slot = self.slot_of(stable)
        if slot != last_slot:
            return self.readable_end(slot) if slot < last_slot else 0
        unstable = yield from self.segment(slot).translate_offset(stable)
        return self.readable_end(slot) if unstable is None else unstable.position

    @property
    def size_in_bytes(self) -> int:
        return sum(view.size for view in self.inactive) + self.active.size
