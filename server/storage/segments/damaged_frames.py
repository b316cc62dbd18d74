"""Finds the next whole batch after one with a damaged length or magic byte, whose header does not lead on to it.

The CRC covers neither, so bytes that carry it are a batch of their size, whatever the header says of it, and the next one
starts behind them. What is damaged otherwise is passed over by its length. This is for a lookup on its way from an index entry:
where damage begins and ends in a whole log is decided by recovery (`recovery/salvage`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ....protocol.limits import MIB
from ....protocol.records.batch import (
    ATTRIBUTES_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    crc32c,
    parse_header,
)
from ..disk.diskops import Procedure, Read
from ..indexes.file_records import FileSlice, FoundBatch

LENGTH_BITS: Final = 32
MAGIC_POSITION: Final = 16
PIECE_BYTES: Final = MIB


class _Frame(NamedTuple):
    """A frame: the bytes at the start of a batch."""

    header: BatchHeader
    size_bytes: int
    """The size for which the bytes carry the CRC; where they do for none, the one that the header says."""
    has_crc: bool
    leads_on: bool
    """Whether the magic is right and the length can be."""

    @property
    def is_damaged(self) -> bool:
        """Return whether the frame's length or magic is damaged, and all else is intact."""
        return self.has_crc and not (self.leads_on and self.size_bytes == self.header.size_bytes)


def _frame_at(area: FileSlice, position: int) -> Procedure[_Frame | None]:
    """None where nothing says how long it is."""
    header = parse_header((yield Read(area.file, position, RECORD_BATCH_OVERHEAD)))
    size = yield from size_by_crc(area, position, header)
    leads_on = header.magic == MAGIC and header.size_bytes >= RECORD_BATCH_OVERHEAD
    if size is None and not leads_on:
        return None
    return _Frame(header, header.size_bytes if size is None else size, size is not None, leads_on)


def position_behind_damage(area: FileSlice, offset: int) -> Procedure[int | None]:
    """Return the position of the first whole frame after the last damaged one before `offset`. The area starts with a batch.

    Return None where no frame is damaged on the way, or the offset is before the position: the damaged frame may hold it.
    """
    position, lowest = area.start, 0
    is_behind, resumed = False, None
    while 0 <= position <= area.end - RECORD_BATCH_OVERHEAD:
        frame = yield from _frame_at(area, position)
        if frame is None:
            return None
        header = frame.header
        if frame.is_damaged:
            is_behind, resumed = True, None
        elif frame.has_crc and is_behind and resumed is None:
            if not lowest <= header.base_offset <= offset:
                return None
            resumed = position
        if frame.has_crc:
            lowest = max(lowest, header.next_offset)
        if frame.leads_on and header.last_offset >= offset and (resumed is not None or not is_behind):
            break
        position += frame.size_bytes
        yield None
    return resumed


def position_behind_unmatched(area: FileSlice, offset: int, timestamp: int) -> Procedure[int | None]:
    """Return the position of the first whole frame after the last damaged one on the way to a matching frame, or the area's
    end. A frame matches if its last offset and largest timestamp are at least these. The area starts with a batch.

    Return None where no frame is damaged on the way, or a damaged one matches and is the result of the search.
    """
    position, resumed = area.start, None
    while 0 <= position <= area.end - RECORD_BATCH_OVERHEAD:
        frame = yield from _frame_at(area, position)
        if frame is None:
            return None
        header = frame.header
        if header.max_timestamp >= timestamp and header.last_offset >= offset:
            return None if frame.is_damaged else resumed
        position += frame.size_bytes
        if frame.is_damaged:
            resumed = position
        yield None
    return resumed


def confirmed_batch(area: FileSlice, offset: int, base_offset: int, end_offset: int) -> Procedure[FoundBatch | None]:
    """The whole batch that holds `offset`, in an area that starts with a batch, where a whole neighbour goes on from it or it
    from a neighbour: no CRC says where a batch lies. `base_offset`, `end_offset`: of the segment, which end confirms too.

    For where more is damaged than one batch, so that its neighbours cannot be told from it otherwise. None: nobody knows.
    """
    position = area.start
    held: FoundBatch | None = None
    next_offset: int | None = base_offset if not position else None
    while 0 <= position <= area.end - RECORD_BATCH_OVERHEAD:
        frame = yield from _frame_at(area, position)
        if frame is None:
            return None
        header = frame.header
        is_whole = frame.has_crc and base_offset <= header.base_offset and header.next_offset <= end_offset
        if held is not None and is_whole and header.base_offset == held.header.next_offset:
            return held
        goes_on = is_whole and header.base_offset == next_offset
        if goes_on and header.base_offset > offset:
            return None
        held = None
        if is_whole and not frame.is_damaged and header.base_offset <= offset < header.next_offset:
            held = FoundBatch(header, position, None)
            if goes_on:
                return held
        next_offset = header.next_offset if is_whole else None
        position += frame.size_bytes
        yield None
    return held if held is not None and held.header.next_offset == end_offset else None


def damaged_header(area: FileSlice) -> Procedure[BatchHeader | None]:
    """The header at the start of an area whose length or magic is damaged; None where the bytes carry its CRC for no size."""
    if area.end - area.start < RECORD_BATCH_OVERHEAD:
        return None
    header = parse_header((yield Read(area.file, area.start, RECORD_BATCH_OVERHEAD)))
    size = yield from size_by_crc(area, area.start, header)
    return None if size is None else header


def size_by_crc(area: FileSlice, position: int, header: BatchHeader) -> Procedure[int | None]:
    """The size for which the bytes at a position carry the header's CRC: the one that it says, or one that differs in a bit."""
    for size in possible_sizes(header):
        if not RECORD_BATCH_OVERHEAD <= size <= area.end - position:
            continue
        if size == header.size_bytes or (yield from _may_follow(area, position + size)):
            crc = yield from _crc(area, position + ATTRIBUTES_POSITION, position + size)
            if crc == header.crc:
                return size
    return None


def possible_sizes(header: BatchHeader) -> Iterator[int]:
    """The size that a header says, then those that its length gives with one bit the other way; they may be any number."""
    yield header.size_bytes
    for bit in range(LENGTH_BITS):
        yield LOG_OVERHEAD + ((header.batch_length & 0xFFFFFFFF) ^ (1 << bit))


def _may_follow(area: FileSlice, position: int) -> Procedure[bool]:
    """Return whether a batch may start there, or the area ends."""
    if area.end - position < RECORD_BATCH_OVERHEAD:
        return position == area.end
    return bytes((yield Read(area.file, position + MAGIC_POSITION, 1))) == bytes((MAGIC,))


def _crc(area: FileSlice, start: int, stop: int) -> Procedure[int]:
    """In pieces: a damaged length can mean the whole file."""
    crc = 0
    while start < stop:
        piece = yield Read(area.file, start, min(PIECE_BYTES, stop - start))
        if not piece:
            break
        crc = crc32c(piece, crc)
        start += len(piece)
        if start < stop:
            yield None
    return crc
