"""Indexes of one segment, made anew from its batches (Kafka: LogSegment.recover).

The indexes of a log of our own come out as they were. Kafka's can differ where it appended several batches at once: there it
makes one entry at most. Positions are those that batches have once what was damaged is taken out.
"""

from __future__ import annotations

import attrs

from ....protocol.limits import INT64_MAX
from ....protocol.records.batch import LOG_OVERHEAD, BatchHeader, parse_header
from ....protocol.types import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP, Bytes
from ..disk.diskops import Procedure
from ..disk.filesystem import FileSystem, read_at
from ..disk.path_ops import FileSize, Unlink, WriteFile
from ..indexes.index import IndexTail
from ..indexes.transaction_index import AbortedTxn, encode_entry
from ..log.leader_epochs import LeaderEpochs
from ..producers.producer_state import ProducerState
from ..segments.segment import LogSegment
from .salvage import STAMP_BYTES, Damage, GoodBatch, scan_batches


@attrs.define(eq=False, repr=False)
class SegmentRebuild:
    """What a scan of one segment has found so far. `epochs` and `producers` go on from segment to segment."""

    segment: LogSegment
    epochs: LeaderEpochs
    producers: ProducerState
    valid_bytes: int = 0
    next_offset: int = attrs.field(init=False)
    batches: int = 0
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = attrs.field(init=False)
    first_timestamp: int | None = None
    """The largest one of the first batch."""
    damages: list[Damage] = attrs.field(factory=list)
    offset_tail: IndexTail = attrs.field(init=False)
    time_tail: IndexTail = attrs.field(init=False)
    offset_entries: bytearray = attrs.field(factory=bytearray)
    time_entries: bytearray = attrs.field(factory=bytearray)
    aborted: list[AbortedTxn] = attrs.field(factory=list)
    _batches_before: list[int] = attrs.field(factory=list)
    """For each damage: how many batches lie before it."""
    _last_indexed: int = 0
    _interval_bytes: int = attrs.field(init=False)
    last_epoch: int = NO_PARTITION_LEADER_EPOCH
    """The largest leader epoch."""

    def __attrs_post_init__(self) -> None:
        self.next_offset = self.offset_of_max_timestamp = self.segment.base_offset
        self._interval_bytes = self.segment.config.index_interval_bytes
        self.segment.offset_index.grow()
        self.segment.time_index.grow()
        self.offset_tail = self.segment.offset_index.empty_tail()
        self.time_tail = self.segment.time_index.empty_tail()

    @property
    def trailing(self) -> list[Damage]:
        """The damages behind the last batch."""
        return self.damages[self._batches_before.index(self.batches) :] if self.batches in self._batches_before else []

    def damage(self, damage: Damage) -> None:
        """The next thing in the file is no batch."""
        self.damages.append(damage)
        self._batches_before.append(self.batches)

    def add(self, header: BatchHeader, batch: Bytes) -> None:
        """The next batch. Runs for every batch of a recovery: fields are taken once, properties cost a call each."""
        base_offset, length, epoch, _, _, _, delta, _, max_timestamp, producer_id = header[:10]
        last_offset, position = base_offset + delta, self.valid_bytes
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.offset_of_max_timestamp = max_timestamp, last_offset
        if not position:
            self.first_timestamp = max_timestamp
        if position - self._last_indexed > self._interval_bytes:
            self._index(last_offset, position)
        if epoch > self.last_epoch:
            self.last_epoch = epoch
            latest = self.epochs.latest_epoch
            if latest is None or epoch > latest:
                self.epochs.assign(epoch, base_offset)
        self.next_offset = last_offset + 1
        if producer_id < 0:
            self.producers.end_offset = self.next_offset
        else:
            aborted = self.producers.replay(header, batch)
            if aborted is not None:
                self.aborted.append(aborted)
        self.valid_bytes = position + LOG_OVERHEAD + length
        self.batches += 1

    def _index(self, last_offset: int, position: int) -> None:
        offset_index, time_index = self.segment.offset_index, self.segment.time_index
        if self.offset_tail.entries < offset_index.max_entries:
            self.offset_tail, entry = offset_index.entry_after(self.offset_tail, last_offset, position)
            self.offset_entries += entry
        if self.time_tail.entries < time_index.max_entries - 1:
            self.time_tail, entry = time_index.entry_after(self.time_tail, self.max_timestamp, self.offset_of_max_timestamp)
            self.time_entries += entry
        self._last_indexed = position

    def put_in_place(self) -> Procedure[None]:
        """Let the segment have what was found, in memory and in the files of its indexes. A file without a byte stays where it
        is, if nothing is to be in it: that is what it costs most to make for a log that has little."""
        segment = self.segment
        segment.size = self.valid_bytes
        segment.max_timestamp, segment.offset_of_max_timestamp = self.max_timestamp, self.offset_of_max_timestamp
        segment.is_max_timestamp_certain = True
        if self.max_timestamp > self.time_tail.key:
            self.time_tail, entry = segment.time_index.entry_after(
                self.time_tail, self.max_timestamp, self.offset_of_max_timestamp, skip_full_check=True
            )
            self.time_entries += entry
        for mapped, tail, entries in (
            (segment.offset_index, self.offset_tail, self.offset_entries),
            (segment.time_index, self.time_tail, self.time_entries),
        ):
            if entries or (yield FileSize(mapped.path)) != 0:
                yield from mapped.replace(tail, bytes(entries))
            else:
                mapped.take_empty_file()
        index = segment.transaction_index
        if self.aborted:
            yield WriteFile(index.path, b"".join(encode_entry(txn) for txn in self.aborted), durable=False)
        else:
            yield Unlink(index.path)
        index.take(len(self.aborted), self.aborted[-1].last_offset if self.aborted else None)


def scan_segment(
    fs: FileSystem,
    segment: LogSegment,
    epochs: LeaderEpochs,
    producers: ProducerState,
    *,
    end_offset: int | None = None,
    torn_from: int = INT64_MAX,
) -> SegmentRebuild:
    """Read every batch of a segment without changing anything on disk.

    Offsets are below `end_offset`, the next segment's base offset. `torn_from`: see `scan_batches`.
    """
    rebuild = SegmentRebuild(segment, epochs, producers)
    path, base_offset = segment.log.path, segment.base_offset
    scan = scan_batches(fs, path, end=segment.size, base_offset=base_offset, end_offset=end_offset, torn_from=torn_from)
    for found in scan:
        if isinstance(found, GoodBatch):
            rebuild.add(found.header, found.batch)
            continue
        rebuild.damage(found)
        if found.stamp is not None:
            batch = found.stamp + read_at(fs, path, found.position + STAMP_BYTES, found.size - STAMP_BYTES)
            rebuild.add(parse_header(batch), batch)
    return rebuild
