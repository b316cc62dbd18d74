"""Record batches in a file: slices of a `.log`, looked at batch by batch (Kafka: FileRecords, FileLogInputStream).

A slice is [start, end) of a file. It ends before an incomplete batch without complaint: whoever wrote the bytes says how many
of them count. What cannot be the header of a batch is a CorruptRecordError that names file and position.

Finds the next whole batch after one with a damaged length or magic byte, whose header does not lead on to it.

The CRC covers neither, so bytes that carry it are a batch of their size, whatever the header says of it, and the next one
starts behind them. What is damaged otherwise is passed over by its length. This is for a lookup on its way from an index entry:
where damage begins and ends in a whole log is decided by recovery (`recovery/salvage`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from ....protocol.errors import CorruptRecordError
from ....protocol.limits import INT64_MAX, KIB, MAX_SEGMENT_BYTES, MIB
from ....protocol.records.batch import (
    ATTRIBUTES_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
    crc32c,
    parse_header,
)
from ....protocol.records.steps import STEPS_PER_PAUSE, UNTOLD_STEPS
from ..disk.diskops import FileHandle, Procedure, Read
from ..errors import StorageError

FIRST_READ_BYTES: Final = 8 * KIB
"""Two index intervals: most lookups end within the first read."""
LARGEST_READ_BYTES: Final = MIB
HEADERS_PER_PAUSE: Final = 2 * STEPS_PER_PAUSE
UNTOLD_HEADERS: Final = 2 * UNTOLD_STEPS
_ANY_TIME: Final = -INT64_MAX - 1
REACH: Final = Struct(">qi4xb6xi8xq")
"""base_offset, batch_length, magic, last_offset_delta, max_timestamp: the fields of a header that say what a batch reaches."""


class FoundBatch(NamedTuple):
    """A batch at `position`; `data` is all of it when it was read on the way, else None."""

    header: BatchHeader
    position: int
    data: memoryview | None


class FileSlice(NamedTuple):
    """The bytes [start, end) of a file of record batches."""

    file: FileHandle
    start: int
    end: int

    def read_batch(self, found: FoundBatch) -> Procedure[memoryview]:
        """All bytes of a batch that was found in this slice."""
        if found.data is not None:
            return found.data
        data = yield Read(self.file, found.position, found.header.size_bytes)
        return memoryview(data)

    def find_batch(self, matches: Callable[[BatchHeader], bool]) -> Procedure[FoundBatch | None]:
        """The first batch whose header matches; only headers are looked at, in reads that grow to 1 MiB."""
        position, end = self.start, self.end
        read_bytes = FIRST_READ_BYTES
        headers = 0
        while position + RECORD_BATCH_OVERHEAD <= end:
            view = memoryview((yield Read(self.file, position, min(read_bytes, end - position))))
            length, at = len(view), 0
            if length < RECORD_BATCH_OVERHEAD:
                return None
            while at + RECORD_BATCH_OVERHEAD <= length:
                header = parse_header(view, at)
                size = header.batch_length + LOG_OVERHEAD
                if size < RECORD_BATCH_OVERHEAD or header.magic != MAGIC:
                    raise not_a_batch(self.file.path, position + at, header)
                if position + at + size > end:
                    return None
                headers += 1
                if not headers % HEADERS_PER_PAUSE:
                    yield None
                if matches(header):
                    data = view[at : at + size] if at + size <= length else None
                    return FoundBatch(header, position + at, data)
                at += size
            position += at
            read_bytes = min(2 * read_bytes, LARGEST_READ_BYTES)
        return None

    def find_reaching(self, offset: int, timestamp: int = _ANY_TIME) -> Procedure[FoundBatch | None]:
        """The first batch with a last offset and a largest timestamp of at least these: as `find_batch` for most lookups, which
        need no header of what they pass over. The slice is of whole batches: one that is said to reach over its end has a
        damaged length, and what it hides is a CorruptRecordError."""
        position, end = self.start, self.end
        read_bytes = FIRST_READ_BYTES
        headers = 0
        unpack = REACH.unpack_from
        while position + RECORD_BATCH_OVERHEAD <= end:
            most = end - position
            data = yield Read(self.file, position, most if most < read_bytes else read_bytes)
            at, last = 0, len(data) - RECORD_BATCH_OVERHEAD
            if last < 0:
                return None
            while at <= last:
                base_offset, size, magic, last_offset_delta, max_timestamp = unpack(data, at)
                size += LOG_OVERHEAD
                if size < RECORD_BATCH_OVERHEAD or magic != MAGIC:
                    raise not_a_batch(self.file.path, position + at, parse_header(data, at))
                if at + size > most:
                    raise reaches_over_end(self.file.path, position + at, size, end)
                if max_timestamp >= timestamp and base_offset + last_offset_delta >= offset:
                    if headers > UNTOLD_HEADERS:
                        yield None
                    whole = memoryview(data)[at : at + size] if at + size <= len(data) else None
                    return FoundBatch(parse_header(data, at), position + at, whole)
                at += size
                headers += 1
                if headers == HEADERS_PER_PAUSE:
                    headers = 0
                    yield None
            position += at
            read_bytes = min(2 * read_bytes, LARGEST_READ_BYTES)
        if position < end:
            raise reaches_over_end(self.file.path, position, RECORD_BATCH_OVERHEAD, end)
        return None

    def visit_headers(self, visit: Callable[[BatchHeader, int], None]) -> Procedure[int]:
        """Show every header with its position; answers the position behind the last whole batch."""
        stop = self.start

        def see(header: BatchHeader) -> bool:
            nonlocal stop
            visit(header, stop)
            stop += header.size_bytes
            return False

        yield from self.find_batch(see)
        return stop

    def find_end(self, base_offset: int) -> Procedure[tuple[int, int]]:
        """(offset, position) behind the last whole batch; `base_offset` and the slice's start when there is none."""
        next_offset = base_offset

        def see(header: BatchHeader, _: int) -> None:
            nonlocal next_offset
            next_offset = header.next_offset

        stop = yield from self.visit_headers(see)
        return next_offset, stop

    def visit_batches(self, visit: Callable[[BatchHeader, int, memoryview], bool]) -> Procedure[int]:
        """Show every whole batch until `visit` answers False; answers the position behind the last one shown.

        Needs memory for the largest batch and 1 MiB. The view is only good during the call.
        """
        position, end = self.start, self.end
        while position + RECORD_BATCH_OVERHEAD <= end:
            view = memoryview((yield Read(self.file, position, min(LARGEST_READ_BYTES, end - position))))
            if len(view) < RECORD_BATCH_OVERHEAD:
                break
            at = 0
            while at + RECORD_BATCH_OVERHEAD <= len(view):
                header = parse_header(view, at)
                size = header.batch_length + LOG_OVERHEAD
                if size < RECORD_BATCH_OVERHEAD or header.magic != MAGIC:
                    raise not_a_batch(self.file.path, position + at, header)
                if position + at + size > end:
                    return position + at
                if at + size > len(view):
                    break
                if not visit(header, position + at, view[at : at + size]):
                    return position + at
                at += size
            if at == 0:
                found = FoundBatch(parse_header(view), position, None)
                if not visit(found.header, position, (yield from self.read_batch(found))):
                    return position
                at = found.header.size_bytes
            position += at
        return position


def whole_file(file: FileHandle, size: int) -> FileSlice:
    """All of a segment's file. Raises StorageError when it is larger than positions can say."""
    if size > MAX_SEGMENT_BYTES:
        raise StorageError(f"{file.path} has {size} bytes. A segment has at most {MAX_SEGMENT_BYTES}. Move it away")
    return FileSlice(file, 0, size)


def reaches_over_end(path: str, position: int, size: int, end: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"{path}: the batch at position {position} takes {size} bytes or more, but only {end - position} "
        f"follow up to position {end}. See `triolog dump {path}`"
    )


def not_a_batch(path: str, position: int, header: BatchHeader) -> CorruptRecordError:
    if header.magic in (0, 1):
        found = f"magic {header.magic}, a legacy message format. Let Kafka convert the log to magic {MAGIC} first"
    else:
        found = f"magic {header.magic} and batch length {header.batch_length}"
        found += f". Expected magic {MAGIC} and a length of at least {RECORD_BATCH_OVERHEAD - LOG_OVERHEAD}"
    return CorruptRecordError(f"{path}: no record batch at position {position}: {found}. See `triolog dump {path}`")


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
