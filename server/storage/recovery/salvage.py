"""Every batch of a `.log` file that is whole, and what lies between: a scan that goes on behind damage.

A batch is good when its bytes carry its CRC, its offsets lie behind those before it, and its length leads to what follows. The
CRC covers all but the first 17 bytes; these are told from the neighbours: `base_offset` from the offsets before and behind it,
`batch_length` and `magic` from where the next batch starts, `partition_leader_epoch` from its neighbours' epochs, which never
descend. When exactly one value is possible the batch has lost nothing: its damage carries the true bytes (`stamp`). The CRC is
then right with them in place, so no record is guessed.

Behind bytes that are no batch the scan resynchronises at the next position where one starts: a length that leads to another
header decides first; a search for plausible headers second. Where the damaged header can still be believed, its own extent is
only left for a batch that has the offset which has to follow, or from which one batch follows another up to where the search
ends, past the end of that extent: a record may contain something that looks like a batch. Where an append may be torn
(`torn_from`) and the extent passes the end of the file, it is left only if the bytes up to the next batch carry its CRC. If the
header itself is lost there, only a batch counts that another batch, zeros or the end of the file follow.

What counts as damage, and where reading goes on behind it, is decided here for recovery, `verify`, `export` and Spark's jobs.

Memory: one read of 1 MiB, or one batch that is larger and whole. Time: a search takes CRCs of at most 8 times the rest of the
file.

The bytes of a `.log` that is scanned: a window of 1 MiB, or of one batch that is larger and whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import attrs

from ....protocol.limits import INT32_MAX, INT64_MAX, MAX_SEGMENT_BYTES, MIB
from ....protocol.records.batch import LOG_OVERHEAD, MAGIC, RECORD_BATCH_OVERHEAD, BatchHeader, crc32c, parse_header
from ..disk.filesystem import FileSystem, opened, pieces, read_at
from ..errors import StorageError
from ..indexes.file_records import possible_sizes

READ_BYTES: Final = MIB
CRC_COVERS_FROM: Final = 21
"""In a batch: what lies before is not covered."""


@attrs.define(eq=False, repr=False)
class LogWindow:
    """A view of the bytes read before `end`. Owner: one scan."""

    _fs: FileSystem
    _fd: int
    end: int
    view: memoryview = attrs.field(factory=lambda: memoryview(b""))
    start: int = 0
    """Where in the file the view starts."""

    def read(self, position: int, size: int) -> memoryview:
        """`size` bytes that exist; of the view when they are in it."""
        at = position - self.start
        if at < 0 or at + size > len(self.view):
            return memoryview(self._fs.read(self._fd, size, position))
        return self.view[at : at + size]

    def reach(self, position: int, size: int) -> None:
        """Let the view hold these bytes, as far as there are so many."""
        at = position - self.start
        if at < 0 or at + min(size, self.end - position) > len(self.view):
            self.move(position, size)

    def move(self, position: int, size: int) -> None:
        """Let the view start at a position and hold `size` bytes or more, as far as there are so many."""
        size = min(max(size, READ_BYTES), self.end - position)
        self.view = memoryview(self._fs.read(self._fd, size, position))
        self.start = position

    def crc(self, position: int, size: int) -> int:
        """CRC of what it covers in a batch; read in pieces, for a length may be damaged."""
        crc, at, stop = 0, position + CRC_COVERS_FROM, position + size
        while at < stop:
            piece = self.read(at, min(READ_BYTES, stop - at))
            crc = crc32c(piece, crc)
            at += len(piece)
        return crc

    def carries_crc(self, position: int, size: int, crc: int) -> bool:
        """Return whether `size` bytes exist, enough for a batch, and have that CRC."""
        if not RECORD_BATCH_OVERHEAD <= size <= self.end - position:
            return False
        return self.crc(position, size) == crc

    def good_header(self, position: int) -> BatchHeader | None:
        """Return the header of a batch that starts there and carries its CRC; its offsets are not looked at."""
        if self.end - position < RECORD_BATCH_OVERHEAD:
            return None
        header = parse_header(self.read(position, RECORD_BATCH_OVERHEAD))
        return header if header.magic == MAGIC and self.carries_crc(position, header.size_bytes, header.crc) else None


STAMP: Final = Struct(">qiib")
"""base_offset, batch_length, partition_leader_epoch, magic: what the CRC does not cover."""
STAMP_BYTES: Final = STAMP.size
LARGEST_EPOCH_STEP: Final = 1024
"""A new leader adds one; larger steps by a single bit at the end of a file are a flipped bit."""
NO_EPOCH: Final = -1
SEARCH_FACTOR: Final = 8
_ZEROS: Final = memoryview(bytes(READ_BYTES))
_MOST_CANDIDATES: Final = 8
"""Batches within the extent of a damaged one that are followed to the end."""
LARGEST_TRUNCATION_GAP: Final = 1 << 24
"""A log that was cut inside of a batch has a gap there, of fewer offsets: 7 bytes a record, 64 MiB a batch."""


class GoodBatch(NamedTuple):
    """A whole batch; `batch` is only good until the next one is asked for."""

    header: BatchHeader
    position: int
    batch: memoryview


class Damage(NamedTuple):
    """Bytes that are no good batch, and the offsets [first_offset, next_offset) that are missing for it.

    At the end of a file whose end offset is not known both are equal: nobody knows how many there were. With a `stamp`
    nothing is missing: the batch there is whole once its first 17 bytes are these.
    """

    position: int
    size: int
    reason: str
    first_offset: int
    next_offset: int
    stamp: bytes | None = None
    is_misplaced: bool = False
    """It is a whole batch, with offsets of another place."""


def is_possible(header: BatchHeader) -> bool:
    """Return whether the header's fields can be those of a stored batch."""
    return (
        header.magic == MAGIC
        and header.size_bytes >= RECORD_BATCH_OVERHEAD
        and header.last_offset_delta >= 0
        and header.base_offset >= 0
        and 0 <= header.records_count <= header.last_offset_delta + 1
    )


def is_settled(header: BatchHeader, following: BatchHeader) -> bool:
    """Return whether the offsets of a batch after a gap agree with those of the batch that follows it. Nothing else confirms
    them."""
    return following.magic == MAGIC and header.next_offset <= following.base_offset


def plain_batches(
    view: memoryview, at: int, *, expected: int, limit: int, epoch: int | None = None, check_crcs: bool = True
) -> Iterator[tuple[BatchHeader, int, int]]:
    """Headers of the batches from `at` on with their extents [start, stop) in `view`, up to the first one that is doubtful.

    Offsets lie in [expected, limit). `epoch`: of the batch before; None when leader epochs are not looked at.
    """
    last = len(view) - RECORD_BATCH_OVERHEAD
    while at <= last:
        header = parse_header(view, at)
        base_offset, length, found_epoch, magic, crc, _, delta, _, _, _, _, _, count = header
        stop = at + length + LOG_OVERHEAD
        if magic != MAGIC or stop > len(view) or stop < at + RECORD_BATCH_OVERHEAD or delta < 0 or not 0 <= count <= delta + 1:
            return
        next_offset = base_offset + delta + 1
        if base_offset != expected or (epoch is not None and found_epoch != epoch):
            if base_offset < expected or stop > last:
                return
            following = parse_header(view, stop)
            if not is_settled(header, following) or (epoch is not None and not _is_epoch_settled(epoch, header, following)):
                return
        if next_offset > limit or (check_crcs and crc32c(view[at + CRC_COVERS_FROM : stop]) != crc):
            return
        yield header, at, stop
        at, expected = stop, next_offset
        if epoch is not None and found_epoch > epoch:
            epoch = found_epoch


def _is_epoch_settled(before: int, header: BatchHeader, following: BatchHeader) -> bool:
    epoch, behind = header.partition_leader_epoch, following.partition_leader_epoch
    return (epoch >= before or epoch == NO_EPOCH) and (epoch <= behind or behind == NO_EPOCH)


def is_zeros(fs: FileSystem, path: str, start: int, stop: int) -> bool:
    """Return whether the existing bytes in [start, stop) of a file are all zeros. Raises OSError."""
    with opened(fs, path) as fd:
        return all(piece.count(0) == len(piece) for piece in pieces(fs, fd, start, stop - start))


def is_torn_tail(fs: FileSystem, path: str, position: int, end: int) -> bool:
    """Return whether a file just ends at `end` in the middle of a batch that starts at `position`, or has only zeros there. A
    running broker or a power cut leaves such a tail. Raises OSError."""
    data = read_at(fs, path, position, min(RECORD_BATCH_OVERHEAD, end - position))
    if len(data) < RECORD_BATCH_OVERHEAD:
        return True
    header = parse_header(data)
    return (header.magic == MAGIC and header.size_bytes > end - position) or is_zeros(fs, path, position, end)


def begins_with_batch(fs: FileSystem, path: str) -> bool:
    """Return whether a file begins with a batch that carries its CRC, whatever its offsets. Raises OSError."""
    with opened(fs, path) as fd:
        return LogWindow(fs, fd, fs.size(fd)).good_header(0) is not None


def scan_batches(
    fs: FileSystem,
    path: str,
    *,
    start: int = 0,
    end: int | None = None,
    base_offset: int,
    end_offset: int | None = None,
    torn_from: int = INT64_MAX,
    end_epoch: int = INT32_MAX,
) -> Iterator[GoodBatch | Damage]:
    """Good batches and damages of the bytes [start, end) of a file, in order and without a hole.

    Offsets lie in [base_offset, end_offset), epochs up to `end_epoch`. `torn_from`: the first offset that may belong to
    a torn append, which is the recovery point after an unclean stop. From there on, a header whose batch passes the end of the
    file ends the scan, unless its length alone is damaged: the bytes after it are part of a record, and a record may contain a
    whole batch that nobody sent here. Raises OSError, StorageError for a file that is larger than a segment can be.
    """
    with opened(fs, path) as fd:
        size = fs.size(fd)
        stop = size if end is None else min(end, size)
        if stop > MAX_SEGMENT_BYTES:
            raise StorageError(f"{path} has {size} bytes. A segment has at most {MAX_SEGMENT_BYTES}. Move it away")
        yield from _Scan(LogWindow(fs, fd, stop), start, base_offset, end_offset, torn_from, end_epoch).run()


@attrs.define(eq=False, repr=False)
class _Scan:
    """A scan: its position, and the last offset and epoch. They form one state: each limits the possible values of the
    others."""

    window: LogWindow
    position: int
    expected: int
    end_offset: int | None
    torn_from: int
    end_epoch: int
    epoch: int = -1
    lost_bytes: int = 0
    """Bytes of the damage that ends at this position."""
    end: int = attrs.field(init=False)
    limit: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.end = self.window.end
        largest = self.expected + INT32_MAX + 1
        self.limit = largest if self.end_offset is None else min(largest, self.end_offset)

    def run(self) -> Iterator[GoodBatch | Damage]:
        """A damage waits for what follows it: only a good batch says how many offsets are missing. Of neighbouring damages
        the last one gets them."""
        lost: Damage | None = None
        while self.position < self.end:
            if lost is None:
                yield from self._plain_batches()
                if self.position >= self.end:
                    break
            self.lost_bytes = 0 if lost is None else lost.size
            found = self._examine(self.position)
            if isinstance(found, Damage) and found.stamp is None:
                self.position += found.size
                if lost is not None:
                    yield lost
                lost = found
                continue
            if isinstance(found, GoodBatch):
                header, size = found.header, found.header.size_bytes
            else:
                assert found.stamp is not None
                rest = self.window.read(found.position + STAMP_BYTES, RECORD_BATCH_OVERHEAD - STAMP_BYTES)
                header, size = parse_header(found.stamp + rest), found.size
            if lost is not None:
                yield lost._replace(next_offset=header.base_offset)
                lost = None
            self._pass(header)
            self.position += size
            yield found
        if lost is not None:
            next_offset = self.expected if self.end_offset is None else max(self.expected, self.end_offset)
            yield lost._replace(next_offset=next_offset)

    def _pass(self, header: BatchHeader) -> None:
        self.expected = header.next_offset
        self.epoch = max(self.epoch, header.partition_leader_epoch)

    def _plain_batches(self) -> Iterator[GoodBatch]:
        """Batches about which nothing is doubtful; stops before the first one that needs a closer look."""
        while self.position < self.end:
            self.window.reach(self.position, RECORD_BATCH_OVERHEAD)
            view, base = self.window.view, self.window.start
            start = at = self.position - base
            plain = plain_batches(view, at, expected=self.expected, limit=self.limit, epoch=self.epoch)
            for header, at, stop in plain:
                # Set first: whoever takes the batch may not come back.
                self._pass(header)
                self.position = base + stop
                yield GoodBatch(header, base + at, view[at:stop])
            if self.position == base + start and not self._read_more():
                return

    def _read_more(self) -> bool:
        """Let the window start at this position, and hold all of a larger batch that is whole; False when it does already."""
        if self.position != self.window.start:
            self.window.move(self.position, READ_BYTES)
            return True
        if len(self.window.view) < RECORD_BATCH_OVERHEAD:
            return False
        header = parse_header(self.window.view)
        if header.size_bytes <= len(self.window.view) or not self.window.carries_crc(
            self.position, header.size_bytes, header.crc
        ):
            return False
        self.window.move(self.position, header.size_bytes + RECORD_BATCH_OVERHEAD)
        return True

    def _examine(self, position: int) -> GoodBatch | Damage:
        rest = self.end - position
        if rest < RECORD_BATCH_OVERHEAD:
            return self._lost(position, rest, f"{rest} bytes, less than the header of a batch")
        header = parse_header(self.window.read(position, RECORD_BATCH_OVERHEAD))
        size = self._whole_size(position, header)
        if size is not None:
            return self._restamped(position, size, header)
        resumed = self._resynchronise(position, header)
        if resumed - position >= RECORD_BATCH_OVERHEAD and self.window.carries_crc(position, resumed - position, header.crc):
            return self._restamped(position, resumed - position, header)
        return self._lost(position, resumed - position, self._reason(position, header))

    def _lost(self, position: int, size: int, reason: str, *, is_misplaced: bool = False) -> Damage:
        """Return a damage whose number of missing offsets is not known yet."""
        return Damage(position, size, reason, self.expected, self.expected, is_misplaced=is_misplaced)

    def _reason(self, position: int, header: BatchHeader) -> str:
        if not any(header):
            return "zeros instead of a batch"
        if header.magic in (0, 1):
            return f"magic {header.magic}, a legacy message format. Only magic {MAGIC} is stored"
        if header.magic != MAGIC or header.size_bytes < RECORD_BATCH_OVERHEAD:
            return f"no batch starts there: magic {header.magic}, batch length {header.batch_length}"
        if position + header.size_bytes > self.end:
            return f"a batch of {header.size_bytes} bytes where the file has {self.end - position} more"
        computed = self.window.crc(position, header.size_bytes)
        return f"batch at offset {header.base_offset} carries CRC {header.crc:#010x}, its bytes have {computed:#010x}"

    def _whole_size(self, position: int, header: BatchHeader) -> int | None:
        """The size for which the bytes carry the header's CRC: the one it says, or one that differs in a single bit."""
        for size in possible_sizes(header):
            if size < RECORD_BATCH_OVERHEAD or not (size == header.size_bytes or self._may_follow(position + size)):
                continue
            if self.window.carries_crc(position, size, header.crc):
                return size
        return None

    def _may_follow(self, position: int) -> bool:
        """Return whether a batch may start there, or the file ends."""
        if self.end - position < RECORD_BATCH_OVERHEAD:
            return position == self.end
        return self.window.read(position + STAMP_BYTES - 1, 1)[0] == MAGIC

    def _restamped(self, position: int, size: int, header: BatchHeader) -> GoodBatch | Damage:
        """The batch there is whole; are its first 17 bytes, and if not, what were they?"""
        following = self.window.good_header(position + size)
        if self.lost_bytes >= RECORD_BATCH_OVERHEAD and not self._may_stand_behind_a_loss(header, following):
            return self._lost(
                position, size, f"offset {header.base_offset} is impossible after {self.lost_bytes} damaged bytes"
            )
        base_offset = self._true_base_offset(header, following)
        if base_offset is None:
            reason = f"offsets {header.base_offset} to {header.last_offset} are not in {self.expected} to {self.limit}"
            return self._lost(position, size, reason, is_misplaced=True)
        epoch = self._true_epoch(header.partition_leader_epoch, following)
        true = header._replace(
            base_offset=base_offset, batch_length=size - LOG_OVERHEAD, partition_leader_epoch=epoch, magic=MAGIC
        )
        if true == header:
            return GoodBatch(header, position, self.window.read(position, size))
        wrong = [
            f"{field} {getattr(header, field)} for {getattr(true, field)}"
            for field in BatchHeader._fields[:4]
            if getattr(header, field) != getattr(true, field)
        ]
        stamp = STAMP.pack(*true[:4])
        return Damage(position, size, f"{', '.join(wrong)}. The rest matches its CRC", base_offset, true.next_offset, stamp)

    def _may_stand_behind_a_loss(self, header: BatchHeader, following: BatchHeader | None) -> bool:
        """Return whether a batch may follow lost ones. Its offset is then greater than expected. Otherwise its first bytes were
        torn off with the loss, and only the next batch can confirm its offset."""
        bound = self.end_offset if following is None else following.base_offset
        return header.base_offset > self.expected or header.next_offset == bound

    def _true_base_offset(self, header: BatchHeader, following: BatchHeader | None) -> int | None:
        """The base offset of a whole batch between its neighbours; None when that cannot be said."""
        found, count, lowest = header.base_offset, header.last_offset_delta + 1, self.expected
        if count <= 0:
            return None
        bound = self.end_offset if following is None else following.base_offset
        if bound is not None and bound - count < lowest:
            # What follows leaves no room, so it is the one that is wrong.
            bound = None if found >= lowest else bound
        highest = (self.limit if bound is None else min(bound, self.limit)) - count
        if bound is None and found - lowest >= LARGEST_TRUNCATION_GAP and _differs_in_a_bit(found, lowest):
            return lowest if lowest <= highest else None
        if lowest <= found <= highest:
            return found
        if highest < lowest or bound is None:
            return None
        return lowest if highest == lowest or _differs_in_a_bit(found, lowest) else None

    def _true_epoch(self, epoch: int, following: BatchHeader | None) -> int:
        """Epochs never descend: one that does not lie between its neighbours' is the nearest that differs in one bit, or
        that of the batch before."""
        lowest, highest = self.epoch, self.end_epoch if following is None else following.partition_leader_epoch
        if highest < lowest:
            highest = INT32_MAX  # what follows is the one that is wrong, or has none
        if epoch == NO_EPOCH:
            return epoch
        is_jump = highest == INT32_MAX and epoch - lowest >= LARGEST_EPOCH_STEP and (epoch ^ lowest).bit_count() == 1
        if lowest <= epoch <= highest and not is_jump:
            return epoch
        if lowest == NO_EPOCH:
            return highest if highest < INT32_MAX else epoch
        near = [other for bit in range(31) if lowest <= (other := epoch ^ (1 << bit)) <= min(highest, lowest + 1)]
        return near[0] if len(near) == 1 else lowest

    def _resynchronise(self, position: int, header: BatchHeader) -> int:
        """Return the position of the next good batch, or the end when there is none."""
        believed = (
            header.magic == MAGIC
            and header.size_bytes >= RECORD_BATCH_OVERHEAD
            and self.expected <= header.base_offset < self.limit
            and header.last_offset_delta >= 0
        )
        claimed = position + 1
        if self.expected >= self.torn_from:
            if not believed:
                return self._after_torn_header(position)
            if position + header.size_bytes > self.end:
                return self._after_damaged_length(position, header)
        if believed:
            claimed = min(position + header.size_bytes, self.end)
            if position + header.size_bytes == self.end or self.window.good_header(claimed) is not None:
                return claimed
        resumed = self._search(position + 1, claimed, header.next_offset if believed else None)
        chain = self._find_chain(position + RECORD_BATCH_OVERHEAD, resumed, position + header.size_bytes) if believed else None
        return resumed if chain is None else chain

    def _after_damaged_length(self, position: int, header: BatchHeader) -> int:
        """Return where the batch after `position` starts if only the length there is damaged, otherwise the end of the file.

        The bytes up to the next batch then carry the header's CRC. If they do not, the append is torn, and every batch after
        its header is part of one of its records.
        """
        resumed = position + RECORD_BATCH_OVERHEAD
        for _ in range(_MOST_CANDIDATES):
            resumed = self._search(resumed, resumed, None)
            if resumed == self.end or self.window.carries_crc(position, resumed - position, header.crc):
                return resumed
            resumed += RECORD_BATCH_OVERHEAD
        return self.end

    def _after_torn_header(self, position: int) -> int:
        """Return where the first batch starts that is no part of a record, or the end of the file. A power cut may have taken
        the first bytes of an append, and a record in the rest may contain whole batches. The rest of the record follows."""
        for _ in range(_MOST_CANDIDATES):
            position = self._search(position + 1, position + 1, None)
            if position == self.end or self._is_followed(position):
                return position
            position += RECORD_BATCH_OVERHEAD
        return self.end

    def _is_followed(self, position: int) -> bool:
        """Return whether a chain of batches ends with the file, with zeros that a power cut left, or with a torn batch."""
        header = parse_header(self.window.read(position, RECORD_BATCH_OVERHEAD))
        while (rest := self.end - (position := position + header.size_bytes)) > 0:
            data = bytes(self.window.read(position, min(rest, RECORD_BATCH_OVERHEAD)))
            if rest < RECORD_BATCH_OVERHEAD:
                return rest >= 8 and header.next_offset <= int.from_bytes(data[:8], "big", signed=True) < self.limit
            following = parse_header(data)
            if not any(following):
                return True
            if following.magic != MAGIC or not header.next_offset <= following.base_offset < self.limit:
                return False
            header = following
        return True

    def _find_chain(self, position: int, stop: int, claimed: int) -> int | None:
        """The first good batch from `position` on from which one follows another to `stop`; none of them ends at `claimed`,
        as what the last header of the last record contains would."""
        for _ in range(_MOST_CANDIDATES):
            position = self._search(position, position, None)
            if position >= stop:
                return None
            if self._leads_to(position, stop, claimed):
                return position
            position += RECORD_BATCH_OVERHEAD
        return None

    def _leads_to(self, position: int, stop: int, claimed: int) -> bool:
        while stop - position >= RECORD_BATCH_OVERHEAD and position != claimed:
            header = parse_header(self.window.read(position, RECORD_BATCH_OVERHEAD))
            if not is_possible(header):
                return False
            position += header.size_bytes
        return position == stop != claimed

    def _search(self, position: int, free_from: int, next_offset: int | None) -> int:
        """The first good batch from `position` on; before `free_from` only one that starts at `next_offset`."""
        if next_offset is None:
            position = max(position, free_from)
        budget = SEARCH_FACTOR * (self.end - position)
        pattern = self._header_pattern()
        while position + RECORD_BATCH_OVERHEAD <= self.end:
            view = self.window.read(position, min(READ_BYTES, self.end - position))
            if view == _ZEROS[: len(view)]:
                position += max(1, len(view) - RECORD_BATCH_OVERHEAD + 1)
                continue
            for match in pattern.finditer(view):
                at = position + match.start()
                if at + RECORD_BATCH_OVERHEAD > position + len(view):
                    break
                header = parse_header(view, match.start())
                if not self._is_plausible(at, header) or (at < free_from and header.base_offset != next_offset):
                    continue
                budget -= header.size_bytes
                if budget < 0:
                    return self.end
                if self.window.carries_crc(at, header.size_bytes, header.crc):
                    return at
            position += len(view) - RECORD_BATCH_OVERHEAD + 1
        return self.end

    def _header_pattern(self) -> re.Pattern[bytes]:
        """Return a pattern of the possible first 17 bytes of a batch: the upper half of the offset, a length, magic 2."""
        upper = {offset >> 32 for offset in (self.expected, max(self.expected, self.limit - 1))}
        offsets = b"|".join(re.escape((half & 0xFFFFFFFF).to_bytes(4, "big")) for half in sorted(upper))
        return re.compile(rb"(?=(?:" + offsets + rb").{4}[\x00-\x7f].{7}\x02)", re.DOTALL)

    def _is_plausible(self, position: int, header: BatchHeader) -> bool:
        return (
            is_possible(header)
            and header.size_bytes <= self.end - position
            and self.expected <= header.base_offset
            and header.next_offset <= self.limit
        )


def _differs_in_a_bit(one: int, other: int) -> bool:
    """Of two 64-bit integers."""
    return ((one ^ other) & 0xFFFFFFFFFFFFFFFF).bit_count() == 1
