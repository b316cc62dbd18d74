"""Checking what a fetch answers (topic key `fetch.check.crcs`): no damaged byte leaves the server, and none is passed over.

The CRC covers a batch from its attributes on. What lies before is checked by what must hold around it: length and magic by the
framing, the leader epoch by the epoch cache, the base offset by its neighbours and the offset index. Offsets may have gaps
(compaction, truncation, damage that was taken out), so a base offset is called wrong when batches overlap. Which of two it is
is known where the batches before leave just the room for it, or go on in it; what lies behind it is answered then, as is what
lies behind a batch whose length or magic is damaged.
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
from ..indexes.file_records import FoundBatch, confirmed_batch, position_behind_damage
from ..log.leader_epochs import EpochEntry
from ..segments.segment_view import SegmentView, checked

STEPS_PER_BATCH: Final = 4
LOOKED_AT: Final = 3
"""Batches before the first one that is answered: the one before it may hide what was asked for, and the others say whether its
base offset is true. Of the farthest that is not known, and it does not matter."""
BATCHES_PER_PAUSE: Final = STEPS_PER_PAUSE // STEPS_PER_BATCH
CHECKED_PER_STEP: Final = 8192
"""Bytes of a batch whose checksum is computed."""


class _Placed(NamedTuple):
    """A header and the position where it stands."""

    header: BatchHeader
    position: int


class HiddenBatchError(CorruptRecordError):
    """The asked offset lies behind a batch that pretends to hold it: whole batches go on at `position`."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def checked_prefix(
    data: Bytes,
    view: SegmentView,
    position: int,
    offset: int,
    end_offset: int,
    epochs: Sequence[EpochEntry],
    *,
    looked_from: int = 0,
) -> Procedure[Bytes]:
    """The bytes before the first damaged batch of `data`, which was read from `position` for the asked `offset`.

    `end_offset`: where the next segment starts, or the log ends. `looked_from`: a position before which nothing is looked at,
    because damage lies there, which does not hold the offset. Raises CorruptRecordError when nothing good is left,
    HiddenBatchError when the first batch is damaged so that it seems to hold the asked offset, which lies behind it.
    """
    placed, reason = yield from _intact(data, position, epochs)
    stop = placed[-1].position + placed[-1].header.size_bytes if placed else position
    if not placed:
        if reason is not None:
            yield from _check_hides(view, position, offset, reason)
            raise _damaged(view.log.path, position, reason)
        return data
    before = yield from _before(view, placed[0], offset, looked_from)
    if before and placed[0].header.base_offset > offset:
        yield from _check_whole(view, before[-1])
    following = yield from _base_offset_at(view, stop, end_offset)
    bounds = following, view.base_offset, end_offset
    misplaced = yield from _misplaced([*before, *placed], *bounds)
    if misplaced:
        if not looked_from:
            start = (before or placed)[0].position
            before = yield from _more_before(view, before, start, placed[0].position)
        before = yield from _whole_ones(view, before)
        misplaced = yield from _misplaced([*before, *placed], *bounds)
    for wrong, next_offset in misplaced:
        if wrong.position > position:
            return memoryview(data)[: wrong.position - position]
        damaged = _misplaced_error(view, wrong)
        if next_offset is None and wrong in before[: -LOOKED_AT + 1]:
            continue
        if next_offset is None or offset < next_offset:
            raise damaged
        if wrong.position == position:
            raise HiddenBatchError(damaged.message, position + wrong.header.size_bytes)
    return data if reason is None else memoryview(data)[: stop - position]


def behind_damage(view: SegmentView, offset: int) -> Procedure[int | None]:
    """Return the position of the first whole batch after a batch with a damaged length or magic. None if no such damage is
    between the requested offset and the index entry before it, or if the damaged batch holds the offset."""
    _, _, start = yield from view.entry_of(offset - 1)
    return (yield from position_behind_damage(view.bytes_from(start), offset))


def confirmed_at(view: SegmentView, offset: int, end_offset: int, epochs: Sequence[EpochEntry]) -> Procedure[FoundBatch | None]:
    """The whole batch that holds an offset, where a neighbour confirms that it does; None: nobody knows."""
    _, _, start = yield from view.entry_of(offset - 1)
    start = yield from view.position_before(start - 1)
    found = yield from confirmed_batch(view.bytes_from(start), offset, view.base_offset, end_offset)
    if found is not None:
        _check_epoch(found.header, epochs)
    return found


def check_end(view: SegmentView, offset: int, end_offset: int, *, looked_from: int = 0) -> Procedure[None]:
    """Check that a segment in which `offset` was not found really lacks it: its whole batches, from `looked_from` on, reach to
    its end, and the last one does not hold it. Raises CorruptRecordError."""
    _, _, start = yield from view.position_of(offset)
    start = max(start, looked_from)
    last = yield from _last_between(view, start, view.size)
    if last:
        yield from _check_whole(view, last[-1])
        if not looked_from:
            last = yield from _more_before(view, last, start, view.size)
        misplaced = yield from _misplaced(last, end_offset, view.base_offset, end_offset)
        if any(wrong is last[-1] for wrong, _ in misplaced):
            raise _misplaced_error(view, last[-1])


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


def _check_whole(view: SegmentView, placed: _Placed) -> Procedure[None]:
    """Raises CorruptRecordError for a batch that does not carry its CRC: where it ends nobody knows."""
    header, position = placed
    batch = memoryview((yield Read(view.log, position, header.size_bytes)))
    try:
        yield from checked(batch, header)
    except CorruptRecordError as exc:
        raise _damaged(view.log.path, position, exc.message) from exc


def _check_hides(view: SegmentView, position: int, offset: int, reason: str) -> Procedure[None]:
    """Raises HiddenBatchError when the batch behind a damaged one is whole and begins at or before the asked offset."""
    found = yield from view.bytes_from(position).find_batch(lambda header: True)
    behind = None if found is None else view.bytes_from(position + found.header.size_bytes)
    following = None if behind is None else (yield from behind.find_batch(lambda header: True))
    if found is None or following is None or not found.header.base_offset < following.header.base_offset <= offset:
        return
    if (yield from _whole_ones(view, [_Placed(following.header, following.position)])):
        raise HiddenBatchError(reason, following.position)


def _whole_ones(view: SegmentView, placed: list[_Placed]) -> Procedure[list[_Placed]]:
    """Those behind the last one that does not carry its CRC: where that ends nobody knows."""
    for slot in range(len(placed) - 1, -1, -1):
        try:
            yield from _check_whole(view, placed[slot])
        except CorruptRecordError:
            return placed[slot + 1 :]
    return placed


def _before(view: SegmentView, first: _Placed, offset: int, looked_from: int) -> Procedure[list[_Placed]]:
    """Batches before the first one that is answered: the last three from the index entry, or from `looked_from` on.

    Raises CorruptRecordError when the index says that the first one ends elsewhere.
    """
    slot, last_offset, start = yield from view.position_of(offset - 1)
    if slot >= 0 and start == first.position and first.header.last_offset != last_offset:
        raise _damaged(view.log.path, start, f"it ends at offset {first.header.last_offset}, its index says {last_offset}")
    return (yield from _last_between(view, max(start, looked_from), first.position))


def _more_before(view: SegmentView, found: list[_Placed], start: int, stop: int) -> Procedure[list[_Placed]]:
    """Return the last three batches before position `stop`: `found`, or more when the index entries before position `start`
    lead to them."""
    while len(found) < LOOKED_AT and start:
        start = yield from view.position_before(start - 1)
        try:
            found = yield from _last_between(view, start, stop)
        except CorruptRecordError:
            break
    return found


def _last_between(view: SegmentView, start: int, stop: int) -> Procedure[list[_Placed]]:
    """The last three batches of [start, stop), which begins and ends where batches do. Raises CorruptRecordError where they do
    not lead from one end to the other."""
    found: list[_Placed] = []

    def see(header: BatchHeader, at: int) -> None:
        found.append(_Placed(header, at))
        del found[:-LOOKED_AT]

    reached = yield from view.bytes_from(start, stop).visit_headers(see)
    if reached < stop:
        raise _damaged(view.log.path, reached, f"the {stop - reached} bytes up to position {stop} are not a whole batch")
    return found


def _base_offset_at(view: SegmentView, position: int, end_offset: int) -> Procedure[int]:
    if position + RECORD_BATCH_OVERHEAD > view.size:
        return end_offset
    return parse_header((yield Read(view.log, position, RECORD_BATCH_OVERHEAD))).base_offset


def _misplaced(
    placed: Sequence[_Placed], following: int, base_offset: int, end_offset: int
) -> Procedure[list[tuple[_Placed, int | None]]]:
    """The batches that do not end before the next one begins, or do not lie in their segment.

    With each the offset from which on what stands behind it is certain; None where it may be the next one that is wrong, at
    which a reader has to stop as well.
    """
    expected = None if placed[0].position else base_offset
    found: list[tuple[_Placed, int | None]] = []
    for slot, each in enumerate(placed):
        if slot % BATCHES_PER_PAUSE == BATCHES_PER_PAUSE - 1:
            yield None
        header, count = each.header, each.header.last_offset_delta + 1
        behind = min(placed[slot + 1].header.base_offset if slot + 1 < len(placed) else following, end_offset)
        lowest = base_offset if expected is None else expected
        goes_on = header.base_offset == expected and header.next_offset <= end_offset
        if lowest <= header.base_offset <= header.last_offset < behind or (goes_on and behind < header.next_offset):
            expected = header.next_offset  # in the second case what follows is wrong: there is no room before it
            continue
        lies_elsewhere = header.base_offset < base_offset or header.next_offset > end_offset
        leaves_its_room = expected is not None and expected + count == behind
        expected = behind if leaves_its_room or (lies_elsewhere and behind >= base_offset) else None
        found.append((each, expected))
    return found


def _misplaced_error(view: SegmentView, wrong: _Placed) -> CorruptRecordError:
    return _damaged(view.log.path, wrong.position, f"its base offset cannot be {wrong.header.base_offset}")


def _damaged(path: str, position: int, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"{path}: the batch at position {position} is damaged: {reason}. Stop the server and run `triolog "
        "repair` on the directory, or continue after it"
    )
