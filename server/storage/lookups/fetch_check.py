"""Checking what a fetch answers (topic key `fetch.check.crcs`): no damaged byte leaves the server, and none is passed over.

The CRC covers a batch from its attributes on. What lies before is checked by what must hold around it: length and magic by the
framing, the leader epoch by the epoch cache, the base offset by its neighbours and the offset index. Offsets may have gaps
(compaction, truncation, damage that was taken out), so a base offset is called wrong when batches overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from ....protocol.errors import CorruptRecordError
from ....protocol.records.batch import RECORD_BATCH_OVERHEAD, BatchHeader, iter_batches, parse_header
from ....protocol.records.steps import STEPS_PER_PAUSE
from ....protocol.types import Bytes
from ..disk.diskops import Procedure, Read
from ..log.leader_epochs import EpochEntry
from ..segments.segment_view import SegmentView
from ..segments.unpacked_batches import checked

STEPS_PER_BATCH: Final = 4
CHECKED_PER_STEP: Final = 8192
"""Bytes of a batch whose checksum is computed."""


class _Placed(NamedTuple):
    """A header and the position where it stands."""

    header: BatchHeader
    position: int


def checked_prefix(
    data: Bytes, view: SegmentView, position: int, offset: int, end_offset: int, epochs: Sequence[EpochEntry]
) -> Procedure[Bytes]:
    """The bytes before the first damaged batch of `data`, which was read from `position` for the asked `offset`.

    `end_offset`: where the next segment starts, or the log ends. Raises CorruptRecordError when nothing good is left.
    """
    placed, reason = yield from _intact(data, position, epochs)
    stop = placed[-1].position + placed[-1].header.size_bytes if placed else position
    if not placed:
        if reason is not None:
            raise _damaged(view.log.path, position, reason)
        return data
    before = yield from _two_before(view, placed[0], offset)
    following = yield from _base_offset_at(view, stop, end_offset)
    wrong = _first_misplaced([*before, *placed], following, view.base_offset, end_offset)
    if wrong is not None and wrong.position <= position:
        raise _damaged(view.log.path, wrong.position, f"its base offset cannot be {wrong.header.base_offset}")
    if wrong is not None:
        return memoryview(data)[: wrong.position - position]
    return data if reason is None else memoryview(data)[: stop - position]


def check_end(view: SegmentView, offset: int) -> Procedure[None]:
    """Check that a segment in which `offset` was not found really lacks it: its whole batches reach to its end. Raises
    CorruptRecordError."""
    _, _, start = yield from view.position_of(offset)
    stop = yield from view.bytes_from(start).visit_headers(lambda header, at: None)
    if stop != view.size:
        raise _damaged(view.log.path, stop, f"the {view.size - stop} bytes up to the segment's end are no whole batch")


def _intact(data: Bytes, position: int, epochs: Sequence[EpochEntry]) -> Procedure[tuple[list[_Placed], str | None]]:
    """The whole batches up to the first one that is damaged by itself, and what is wrong with that one."""
    placed: list[_Placed] = []
    unsaid = 0
    try:
        for header, batch in iter_batches(data):
            yield from checked(batch, header)
            _check_epoch(header, epochs)
            placed.append(_Placed(header, position))
            position += header.size_bytes
            unsaid += STEPS_PER_BATCH + header.size_bytes // CHECKED_PER_STEP
            if unsaid > STEPS_PER_PAUSE:
                unsaid = 0
                yield None
    except CorruptRecordError as exc:
        return placed, exc.message
    return placed, None


def _check_epoch(header: BatchHeader, epochs: Sequence[EpochEntry]) -> None:
    slot = bisect_right(epochs, header.base_offset, key=lambda entry: entry.start_offset) - 1
    if slot >= 0 and header.partition_leader_epoch != epochs[slot].epoch:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} has leader epoch {header.partition_leader_epoch}, the log had "
            f"{epochs[slot].epoch} there"
        )


def _two_before(view: SegmentView, first: _Placed, offset: int) -> Procedure[list[_Placed]]:
    """The two batches before the first one that is answered, as far as the segment has them.

    Raises CorruptRecordError when the index says that the first one ends elsewhere.
    """
    slot, last_offset, start = yield from view.position_of(offset - 1)
    if slot >= 0 and start == first.position and first.header.last_offset != last_offset:
        raise _damaged(view.log.path, start, f"it ends at offset {first.header.last_offset}, its index says {last_offset}")
    found: list[_Placed] = []

    def see(header: BatchHeader, at: int) -> None:
        found.append(_Placed(header, at))
        del found[:-2]

    yield from view.bytes_from(start, first.position).visit_headers(see)
    return found


def _base_offset_at(view: SegmentView, position: int, end_offset: int) -> Procedure[int]:
    if position + RECORD_BATCH_OVERHEAD > view.size:
        return end_offset
    return parse_header((yield Read(view.log, position, RECORD_BATCH_OVERHEAD))).base_offset


def _first_misplaced(placed: Sequence[_Placed], following: int, base_offset: int, end_offset: int) -> _Placed | None:
    """The first batch that does not end before the next one begins, or does not lie in its segment.

    A base offset that grew overlaps what follows, one that shrank what stands before: then it is the batch before it that is
    called wrong, which is where a reader has to stop as well.
    """
    for slot, (header, position) in enumerate(placed):
        behind = placed[slot + 1].header.base_offset if slot + 1 < len(placed) else following
        if not base_offset <= header.base_offset <= header.last_offset < min(behind, end_offset):
            return _Placed(header, position)
    return None


def _damaged(path: str, position: int, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"{path}: the batch at position {position} is damaged: {reason}; stop the server and run `triolog repair` on the "
        "directory, or go on behind it"
    )
