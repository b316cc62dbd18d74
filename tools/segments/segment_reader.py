"""A split of a segment file read to Arrow batches: about 4 MiB of whole record batches at a time, decoded together.

Each chunk is walked by header first; `segment_damage` decides about damage. A batch is beyond doubt when the server's `salvage`
accepts it without a closer look; leader epochs are not checked. Whole batches go to the columnar codec together; what that
refuses is decoded batch by batch to find the one whose records are wrong.

Memory: a chunk, what it decodes to, and a batch that is larger than a chunk. Chunks shrink where batches are highly compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from ...protocol.errors import RequestError
from ...protocol.limits import KIB, MIB
from ...protocol.records.batch import RECORD_BATCH_OVERHEAD, iter_batches, parse_header
from ...protocol.records.columnar.decode import Wanted, decode_batches
from ...protocol.records.columnar.schema import TimestampUnit
from ...protocol.records.record import CommittedFilter
from ...server.offline.stored_records import restored
from ...server.storage.errors import StorageError
from ...server.storage.recovery.salvage import Damage, is_possible, plain_batches
from .segment_bytes import FILES, SegmentBytes
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
MAX_RECORDS: Final = 20_000
"""Rows of an Arrow batch: from 20,000 on Spark takes them at full speed (spark.md 4.1)."""


class SegmentGoneError(StorageError):
    """A segment was deleted, cut or compacted between planning and reading, or its topic deleted."""


@attrs.frozen(kw_only=True)
class SegmentRead:
    """The options of a read, shared by all its splits. Picklable."""

    columns: tuple[str, ...]
    mode: ReadMode = ReadMode.PERMISSIVE
    check_crcs: bool = True
    fail_on_data_loss: bool = True
    chunk_bytes: int = CHUNK_BYTES
    max_records: int = MAX_RECORDS
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    """Which records are meant, as `Wanted` has it."""
    timestamp_unit: TimestampUnit = "us"
    advice: str = "Read again, or with snapshot=server. failOnDataLoss=false continues without them"
    """What a person can do when a segment has changed."""


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
    """Return the evidence that the file has changed since planning, or None. Positions in a changed file are meaningless."""
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
        f"{split.path}: {what}. Offsets {max(split.low, split.first_offset)} to "
        f"{min(split.high, split.end_offset) - 1} of {split.topic}-{split.partition} may be lost"
    )
    if read.fail_on_data_loss:
        raise SegmentGoneError(f"{text}. {read.advice}")
    LOGGER.warning("%s", text)


@attrs.define(eq=False, repr=False)
class SplitReader:
    """A pass over a split. Owner: the caller, which iterates `run` and closes it afterwards."""

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
        self._wanted = Wanted(
            split.topic,
            split.partition,
            read.columns,
            max(0, split.low),
            split.high,
            start_timestamp=read.start_timestamp,
            end_timestamp=read.end_timestamp,
            timestamp_unit=read.timestamp_unit,
        )
        self._markers = MarkerSearch(split)
        self._chunk_bytes = read.chunk_bytes

    def close(self) -> None:
        self._markers.close()
        self.counts.log_total(self.split.path)

    def run(self, between_chunks: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """An Arrow batch for each chunk. Raises what `read_split` does."""
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
            position, next_offset = position + len(chunk.whole), chunk.next_offset
            if len(data) < size and not chunk.whole and chunk.damaged_at is None:
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

    def _walk(self, position: int, data: memoryview, next_offset: int) -> HeaderWalk:
        walk = HeaderWalk(self.split, self.read.check_crcs, position, data, next_offset)
        walk.run()
        return walk

    def _pass_damage(self, position: int, next_offset: int) -> tuple[int, int, memoryview | None]:
        """Skip damage. Return the position to continue at, its least offset, and the whole batch to read that ends there."""
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

    def _decode(self, chunk: HeaderWalk) -> Iterator[pa.RecordBatch]:
        data = chunk.whole
        if not data:
            return
        aborted = self._aborted(chunk)
        try:
            rows = decode_batches(data, self._wanted, committed=_filter(aborted, data))
        except RequestError:
            yield from self._decode_each(data, chunk.position, aborted)
            return
        if rows.num_rows:
            yield rows
        if rows.nbytes > DECODED_BYTES:
            self._chunk_bytes = max(SMALLEST_CHUNK_BYTES, len(data) * DECODED_BYTES // rows.nbytes)
        elif rows.nbytes < DECODED_BYTES // 4:
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

    def _aborted(self, chunk: HeaderWalk) -> Sequence[AbortedRange] | None:
        """Return the aborted ranges of the chunk, and perhaps more; None when none can exist or the read includes them."""
        if self.split.aborted is None or not chunk.is_transactional:
            return None
        if not self.split.finds_markers:
            return self.split.aborted
        behind = chunk.position + len(chunk.whole)
        return (*self.split.aborted, *self._markers.aborted(iter_batches(chunk.whole), behind, chunk.next_offset))


def _filter(aborted: Sequence[AbortedRange] | None, data: memoryview) -> CommittedFilter | None:
    """For batches that are decoded together; a filter serves only once."""
    if aborted is None:
        return None
    first_offset = parse_header(data).base_offset
    return CommittedFilter((txn.producer_id, txn.first_offset) for txn in aborted if txn.last_offset >= first_offset)


_LARGEST_TRUSTED_BATCH_BYTES: Final = 256 * MIB
"""A header that claims more is believed only after the CRC was taken in pieces: a length may be damaged."""


@attrs.define(eq=False, repr=False)
class HeaderWalk:
    """A walk over the batch headers of a chunk. Owner: the reader of the split."""

    split: SegmentSplit
    check_crcs: bool
    position: int
    """Of `data` in the file."""
    data: memoryview
    next_offset: int
    """The least that the next batch may have."""
    at: int = 0
    """In `data`: behind the last batch that is whole and right."""
    is_transactional: bool = False
    is_end: bool = False
    """Whether nothing behind it is wanted."""
    needed_bytes: int = 0
    """From there on, when the chunk was too small for the next batch or for what tells whether its offset is true."""
    damaged_at: tuple[int, int] | None = None
    """Position of damage, and the least offset that a batch may have there."""

    @property
    def whole(self) -> memoryview:
        """The batches that are whole and right."""
        return self.data[: self.at]

    def run(self) -> None:
        """Sets one of `is_end`, `needed_bytes`, `damaged_at`, or none of them when the chunk ends inside of a header.

        The end is where a second batch in a row lies at or above `high`.
        """
        limit, high = self.split.end_offset, self.split.high
        for header, _, stop in plain_batches(
            self.data, self.at, expected=self.next_offset, limit=limit, check_crcs=self.check_crcs
        ):
            if self.next_offset >= high:
                self.is_end = True
                return
            if header.is_transactional:
                self.is_transactional = True
            self.at, self.next_offset = stop, header.next_offset
        self._look_at_the_next()

    def _look_at_the_next(self) -> None:
        """At the batch that was not taken: is it wanted, is the chunk too small for it, or is it damaged?"""
        size = len(self.data) - self.at
        rest = self.split.end_byte - self.position - self.at
        if size < RECORD_BATCH_OVERHEAD:
            if size and size == rest:
                self.damaged_at = self.position + self.at, self.next_offset
            return
        header = parse_header(self.data, self.at)
        largest = min(rest, max(_LARGEST_TRUSTED_BATCH_BYTES, size))
        has_place = header.size_bytes <= largest and header.next_offset <= self.split.end_offset
        if is_possible(header) and has_place and header.base_offset >= self.next_offset:
            if self.next_offset >= self.split.high:
                self.is_end = True
                return
            is_doubtful = header.base_offset > self.next_offset
            needed = min(rest, header.size_bytes + (RECORD_BATCH_OVERHEAD if is_doubtful else 0))
            if needed > size:
                self.needed_bytes = needed
                return
        self.damaged_at = self.position + self.at, self.next_offset
