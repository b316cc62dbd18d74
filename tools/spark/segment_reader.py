"""A split of a segment file read to Arrow batches: about 4 MiB of whole record batches at a time, decoded together.

Each chunk is walked by header first: what cannot be a batch, carries a wrong CRC or has offsets that contradict its
neighbours' is damage (`segment_damage` says what becomes of it), and runs of batches that hold nothing wanted are not
decoded. Whole runs go to the columnar codec; a run that it refuses is decoded batch by batch to find the one whose records
are wrong.

Memory: a chunk, what it decodes to, and a batch that is larger than a chunk. Chunks shrink where batches are highly compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from ...protocol.errors import CorruptRecordError, RequestError
from ...protocol.limits import KIB, MIB
from ...protocol.records.batch import (
    LOG_OVERHEAD,
    MAGIC,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_batch,
    iter_batches,
    parse_header,
)
from ...protocol.records.columnar.decode import Wanted, decode_batches
from ...protocol.records.committed import CommittedFilter
from ...protocol.records.crc32c import crc32c
from ...server.storage.errors import StorageError
from ...server.storage.salvage import Damage
from ...server.storage.stored_records import restored
from .segment_bytes import FILES, SegmentBytes, is_possible
from .segment_damage import LOGGER, DamageCounts, ReadMode, find_good_batch
from .segment_transactions import MarkerSearch
from .splits import AbortedRange, SegmentSplit

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES: Final = 4 * MIB
"""Of a read; larger ones cost memory (16 MiB: 110 MiB more per worker) and gain nothing."""
DECODED_BYTES: Final = 16 * MIB
"""What a chunk should decode to at most; the next chunk is made smaller when one was above it."""
SMALLEST_CHUNK_BYTES: Final = 4 * KIB
CRC_COVERED_POSITION: Final = 21
"""The CRC of a batch covers it from this byte on."""
_LARGEST_TRUSTED_BATCH_BYTES: Final = 256 * MIB
"""A header that claims more is believed only after the CRC was taken in pieces: a length may be damaged."""
MAX_RECORDS: Final = 20_000
"""Rows of an Arrow batch: from 20,000 on Spark takes them at full speed (spark.md 4.1)."""


class SegmentGoneError(StorageError):
    """A segment was deleted, cut or compacted between planning and reading, or its topic deleted."""


@attrs.frozen(kw_only=True)
class SegmentRead:
    """How the splits of one read are read. Picklable."""

    columns: tuple[str, ...]
    mode: ReadMode = ReadMode.PERMISSIVE
    check_crcs: bool = True
    fail_on_data_loss: bool = True
    chunk_bytes: int = CHUNK_BYTES
    max_records: int = MAX_RECORDS


def read_split(
    split: SegmentSplit, read: SegmentRead, *, between_chunks: Callable[[], None] = lambda: None
) -> Iterator[pa.RecordBatch]:
    """The wanted records of a split, in order, in Arrow batches of at most `read.max_records` rows.

    Raises DamagedSegmentError with mode FAILFAST, SegmentGoneError unless `read.fail_on_data_loss` is off, OSError.
    """
    try:
        with SegmentBytes(split.path, split.end_byte) as file:
            if (change := _change(file, split)) is not None:
                _lose(split, read, change)
                return
            reader = SplitReader(file, split, read)
            try:
                for batch in reader.run(between_chunks):
                    yield from _slices(batch, read.max_records)
            finally:
                reader.close()
    except FileNotFoundError as exc:
        _lose(split, read, f"it was deleted after this read was planned ({exc.strerror})")


def _slices(batch: pa.RecordBatch, max_records: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, max_records):
        yield batch.slice(start, max_records)


def _change(file: SegmentBytes, split: SegmentSplit) -> str | None:
    """What shows that the file is not the one that was planned with; its positions mean nothing then."""
    size = file.size()
    if split.closed_bytes is not None and size != split.closed_bytes:
        return f"it has {size} bytes now and had {split.closed_bytes} when this read was planned: it was compacted or cut"
    if split.start_byte:
        header = file.header_at(split.start_byte)
        if header is None or header.base_offset != split.first_offset:
            return (
                f"the batch at offset {split.first_offset} is not at position {split.start_byte} now: it was compacted or cut"
            )
    return None


def _lose(split: SegmentSplit, read: SegmentRead, what: str) -> None:
    text = (
        f"{split.path}: {what}; offsets {max(split.low, split.first_offset)} to {min(split.high, split.end_offset) - 1} of "
        f"{split.topic}-{split.partition} may be lost"
    )
    if read.fail_on_data_loss:
        raise SegmentGoneError(f"{text}. Read again, or with snapshot=server; failOnDataLoss=false goes on without them")
    LOGGER.warning("%s", text)


@attrs.frozen
class _Chunk:
    """Whole batches from `position` on, walked."""

    position: int
    data: memoryview
    """Of the whole batches only."""
    next_offset: int
    runs: tuple[tuple[int, int], ...]
    """[start, stop) in `data` of neighbouring batches that hold something wanted."""
    is_transactional: bool
    is_end: bool
    """Whether nothing behind it is wanted."""
    needed_bytes: int
    """Of the batch behind it, when the chunk was too small for it."""
    damaged_at: tuple[int, int] | None
    """Position of damage, and the least offset that a batch may have there."""


@attrs.define(eq=False)
class SplitReader:
    """One pass over one split. Owner: whoever iterates `run`, and closes it afterwards."""

    file: SegmentBytes
    split: SegmentSplit
    read: SegmentRead
    counts: DamageCounts = attrs.field(init=False)
    _wanted: Wanted = attrs.field(init=False)
    _markers: MarkerSearch = attrs.field(init=False)
    _chunk_bytes: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        split, read = self.split, self.read
        self.counts = DamageCounts(read.mode)
        self._wanted = Wanted(split.topic, split.partition, read.columns, max(0, split.low), split.high)
        self._markers = MarkerSearch(split)
        self._chunk_bytes = read.chunk_bytes

    def close(self) -> None:
        self._markers.close()
        self.counts.log_total(self.split.path)

    def run(self, between_chunks: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """An Arrow batch for each run of batches. Raises what `read_split` does."""
        position, next_offset = self.split.start_byte, self.split.first_offset
        size = self._chunk_bytes
        while position < self.split.end_byte:
            between_chunks()
            size = min(size, self.split.end_byte - position)
            data = memoryview(self.file.read(position, size))
            chunk = self._walk(position, data, next_offset)
            yield from self._decode(chunk)
            if chunk.is_end:
                return
            position, next_offset = position + len(chunk.data), chunk.next_offset
            if len(data) < size and not chunk.data and chunk.damaged_at is None:
                self._end_early(position + len(data), next_offset)
                return
            size = max(self._chunk_bytes, chunk.needed_bytes)
            if chunk.damaged_at is not None:
                at, least_offset = chunk.damaged_at
                position, next_offset, batch = self._pass_damage(at, least_offset)
                if batch is not None:
                    chunk = self._walk(position - len(batch), batch, next_offset)
                    yield from self._decode(chunk)
                    next_offset = parse_header(batch).next_offset
                    if chunk.is_end:
                        return

    def _end_early(self, position: int, next_offset: int) -> None:
        """The batches end at a position before the planned one: nothing is lost if the wanted ones were before it."""
        if next_offset < self.split.high:
            _lose(self.split, self.read, f"its batches end at position {position} now, {self.split.end_byte} were planned")

    # ---- the walk over headers ---------------------------------------------------------------------------------------

    def _walk(self, position: int, data: memoryview, next_offset: int) -> _Chunk:
        walk = _Walk(self.split, self.read.check_crcs, position, data, next_offset)
        walk.run()
        return _Chunk(
            position,
            data[: walk.at],
            walk.next_offset,
            walk.finished_runs(),
            walk.is_transactional,
            walk.is_end,
            walk.needed_bytes,
            walk.damaged_at,
        )

    def _pass_damage(self, position: int, next_offset: int) -> tuple[int, int, memoryview | None]:
        """Where reading goes on, the least offset there, and the whole batch that ends there, if it is to be read."""
        split = self.split
        damages, good = find_good_batch(split.part, position, next_offset)
        for damage in damages:
            self.counts.take(split.path, damage)
            position, next_offset = damage.position + damage.size, damage.next_offset
            if damage.stamp is not None and self.read.mode is ReadMode.PERMISSIVE:
                good = restored(FILES, split.path, damage.position, damage.size, damage.stamp)
        if good is not None:
            return good.position + good.header.size_bytes, good.header.base_offset, memoryview(bytes(good.batch))
        if damages:
            return position, next_offset, None
        self._end_early(position, next_offset)
        return split.end_byte, next_offset, None

    # ---- decoding ----------------------------------------------------------------------------------------------------

    def _decode(self, chunk: _Chunk) -> Iterator[pa.RecordBatch]:
        aborted = self._aborted(chunk)
        decoded_bytes = 0
        for start, stop in chunk.runs:
            data = chunk.data[start:stop]
            try:
                rows = decode_batches(data, self._wanted, committed=_filter(aborted, data))
            except RequestError:
                yield from self._decode_each(data, chunk.position + start, aborted)
                continue
            decoded_bytes += rows.nbytes
            if rows.num_rows:
                yield rows
        if decoded_bytes > DECODED_BYTES:
            self._chunk_bytes = max(SMALLEST_CHUNK_BYTES, len(chunk.data) * DECODED_BYTES // decoded_bytes)
        elif decoded_bytes < DECODED_BYTES // 4:
            self._chunk_bytes = min(self.read.chunk_bytes, 2 * self._chunk_bytes)

    def _decode_each(self, data: memoryview, position: int, aborted: Sequence[AbortedRange] | None) -> Iterator[pa.RecordBatch]:
        """Batch by batch; one whose records are wrong is damage."""
        for header, batch in iter_batches(data):
            try:
                rows = decode_batches(batch, self._wanted, committed=_filter(aborted, batch))
            except RequestError as exc:
                reason = f"batch at offset {header.base_offset}: {exc.message}"
                lost = Damage(position, header.size_bytes, reason, header.base_offset, header.next_offset)
                self.counts.take(self.split.path, lost)
            else:
                if rows.num_rows:
                    yield rows
            position += header.size_bytes

    def _aborted(self, chunk: _Chunk) -> Sequence[AbortedRange] | None:
        """What of the chunk is aborted, and perhaps more; None when nothing can be, or when that is wanted, too."""
        if self.split.aborted is None or not chunk.is_transactional:
            return None
        if not self.split.finds_markers:
            return self.split.aborted
        behind = chunk.position + len(chunk.data)
        return (*self.split.aborted, *self._markers.aborted(iter_batches(chunk.data), behind, chunk.next_offset))


def _filter(aborted: Sequence[AbortedRange] | None, data: memoryview) -> CommittedFilter | None:
    """For batches that are decoded together; a filter serves only once."""
    if aborted is None:
        return None
    first_offset = parse_header(data).base_offset
    return CommittedFilter((txn.producer_id, txn.first_offset) for txn in aborted if txn.last_offset >= first_offset)


@attrs.define(eq=False)
class _Walk:
    """From header to header through a chunk. `at` is behind the last batch that is whole and right."""

    split: SegmentSplit
    check_crcs: bool
    position: int
    """Of `data` in the file."""
    data: memoryview
    next_offset: int
    at: int = 0
    is_transactional: bool = False
    is_end: bool = False
    needed_bytes: int = 0
    damaged_at: tuple[int, int] | None = None
    _runs: list[tuple[int, int]] = attrs.field(factory=list)
    _run_start: int = 0
    _before: tuple[int, int] | None = None
    """`at` and `next_offset` one batch ago."""

    def run(self) -> None:
        """Sets one of `is_end`, `needed_bytes`, `damaged_at`, or none of them when the chunk ends inside of a header.

        The end is where a second batch in a row lies at or above `high`: one alone may have a damaged offset. So may one behind
        a gap of offsets, until the next header agrees with it.
        """
        size = len(self.data)
        while True:
            self._take_plain()
            if size - self.at < RECORD_BATCH_OVERHEAD:
                self._run_out()
                return
            header = parse_header(self.data, self.at)
            if not is_possible(header) or not self._has_place(header):
                self._stop_at_damage()
                return
            if header.base_offset < self.next_offset:
                self._stop_at_contradiction()
                return
            if self.next_offset >= self.split.high:
                self.is_end = True
                return
            stop = self.at + header.size_bytes
            if stop > size:
                self.needed_bytes = header.size_bytes
                return
            if self.check_crcs and not _carries_crc(self.data[self.at : stop], header):
                self._stop_at_damage()
                return
            self._take(header, stop)

    def _take_plain(self) -> None:
        """Batches about which nothing is doubtful and that hold something wanted, as most do; stops before any other. It does
        what `run` does for one, without a call per question (0.50 for 0.57 CPU s with 550,000 records in batches of 10)."""
        split, data = self.split, self.data
        at, next_offset = self.at, self.next_offset
        last, high = len(data) - RECORD_BATCH_OVERHEAD, min(split.high, split.end_offset)
        while at <= last:
            header = parse_header(data, at)
            base_offset, length, _, magic, crc, attributes, delta, _, max_timestamp, _, _, _, count = header
            stop = at + length + LOG_OVERHEAD
            is_plain = magic == MAGIC and at + RECORD_BATCH_OVERHEAD <= stop <= len(data) and 0 <= count <= delta + 1
            if not is_plain or delta < 0 or base_offset < next_offset or base_offset + delta >= high:
                break
            if base_offset + delta < split.low or max_timestamp < split.min_timestamp:
                break
            if self.check_crcs and crc32c(data[at + CRC_COVERED_POSITION : stop]) != crc:
                break
            if attributes & TRANSACTIONAL_FLAG:
                self.is_transactional = True
            self._before = at, next_offset
            at, next_offset = stop, base_offset + delta + 1
        self.at, self.next_offset = at, next_offset

    def finished_runs(self) -> tuple[tuple[int, int], ...]:
        """The runs of batches that hold something wanted."""
        self._end_run(self.at)
        return tuple(self._runs)

    def _has_place(self, header: BatchHeader) -> bool:
        rest = self.split.end_byte - self.position - self.at
        trusted = max(_LARGEST_TRUSTED_BATCH_BYTES, len(self.data) - self.at)
        return header.size_bytes <= min(rest, trusted) and header.next_offset <= self.split.end_offset

    def _take(self, header: BatchHeader, stop: int) -> None:
        if not self._may_hold(header):
            self._end_run(self.at)
            self._run_start = stop
        self.is_transactional = self.is_transactional or header.is_transactional
        self._before = self.at, self.next_offset
        self.at, self.next_offset = stop, header.next_offset

    def _may_hold(self, header: BatchHeader) -> bool:
        """A control batch holds nothing, but ends no run: the filter of aborted transactions sees it."""
        if header.next_offset <= self.split.low or header.base_offset >= self.split.high:
            return False
        return header.is_control or header.max_timestamp >= self.split.min_timestamp

    def _end_run(self, stop: int) -> None:
        if self._run_start < stop:
            self._runs.append((self._run_start, stop))

    def _run_out(self) -> None:
        """The chunk ends before another header; a batch behind a gap waits for one."""
        size = len(self.data)
        if self.position + size < self.split.end_byte:
            if self._is_doubtful():
                behind = self.at
                self._step_back()
                self.needed_bytes = behind - self.at + RECORD_BATCH_OVERHEAD
        elif self.at < size or (self.check_crcs and self._is_doubtful()):
            self._stop_at_damage()

    def _is_doubtful(self) -> bool:
        """Whether the last batch lies behind a gap of offsets."""
        if self._before is None:
            return False
        at, next_offset = self._before
        return parse_header(self.data, at).base_offset > next_offset

    def _step_back(self) -> None:
        if self._before is not None:
            self.at, self.next_offset = self._before

    def _stop_at_damage(self) -> None:
        """Here, or at the batch before: `salvage` knows how to tell whether its offset is true."""
        if self._is_doubtful():
            self._step_back()
        self.damaged_at = self.position + self.at, self.next_offset

    def _stop_at_contradiction(self) -> None:
        """Two batches whose offsets do not ascend: which of them is wrong, those behind them tell."""
        self._step_back()
        self.damaged_at = self.position + self.at, self.next_offset


def _carries_crc(batch: memoryview, header: BatchHeader) -> bool:
    try:
        check_batch(batch, header)
    except CorruptRecordError:
        return False
    return True
