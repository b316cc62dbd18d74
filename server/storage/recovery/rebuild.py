"""Indexes of one segment, made anew from its batches (Kafka: LogSegment.recover).

The indexes of a log of our own come out as they were. Kafka's can differ where it appended several batches at once: there it
makes one entry at most. Positions are those that batches have once what was damaged is taken out.

The producers of a log that is being opened: taken from a snapshot and the batches behind it; and their snapshots.

What the opening of a log has rebuilt is forced to the device: logs and indexes first, then snapshots, then names.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import attrs

from ....protocol.errors import CorruptRecordError
from ....protocol.limits import INT32_MAX, INT64_MAX
from ....protocol.records.batch import LOG_OVERHEAD, MAGIC, RECORD_BATCH_OVERHEAD, BatchHeader, parse_header
from ....protocol.types import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP, Bytes
from ..disk.diskops import FileSize, Procedure, SyncFile, Unlink, WriteFile, drive, execute
from ..disk.filesystem import FileSystem, read_at, sync_file
from ..disk.filesystem_layers import LaterSyncs
from ..disk.paths import BATCHES_SUFFIX, LOG_SUFFIX, segment_file
from ..disk.write_again import force_batches, write_file_again
from ..indexes.index import IndexTail
from ..indexes.transaction_index import AbortedTxn, encode_entry
from ..log.leader_epochs import LeaderEpochs
from ..log.log import Log
from ..producers.producer_snapshots import (
    delete_snapshot,
    producers_at,
    snapshot_paths,
    snapshots_among,
    stray_snapshots,
    take_snapshot,
)
from ..producers.producer_state import ProducerState
from ..segments.segment import LogSegment, LogSegments
from .salvage import STAMP_BYTES, Damage, GoodBatch, scan_batches

LOGGER: Final = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False)
class SegmentRebuild:
    """The results of a scan of one segment so far. `epochs` and `producers` continue from segment to segment."""

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
    path = segment.log.path
    for found in scan_batches(
        fs,
        path,
        end=segment.size,
        base_offset=segment.base_offset,
        end_offset=end_offset,
        torn_from=torn_from,
        end_epoch=_end_epoch(fs, path, end_offset),
    ):
        if isinstance(found, GoodBatch):
            rebuild.add(found.header, found.batch)
            continue
        rebuild.damage(found)
        if found.stamp is not None:
            batch = found.stamp + read_at(fs, path, found.position + STAMP_BYTES, found.size - STAMP_BYTES)
            rebuild.add(parse_header(batch), batch)
    return rebuild


def _end_epoch(fs: FileSystem, path: str, end_offset: int | None) -> int:
    """Return the leader epoch of the first batch of the next segment: no batch of the segment at `path` has a higher one."""
    following = None if end_offset is None else f"{path.rpartition('/')[0]}/{segment_file(end_offset, LOG_SUFFIX)}"
    if following is None or (fs.file_size(following) or 0) < RECORD_BATCH_OVERHEAD:
        return INT32_MAX
    header = parse_header(read_at(fs, following, 0, RECORD_BATCH_OVERHEAD))
    is_batch = header.magic == MAGIC and header.base_offset >= (end_offset or 0)
    return header.partition_leader_epoch if is_batch and header.partition_leader_epoch >= 0 else INT32_MAX


@attrs.define(eq=False, repr=False)
class OpenedProducers:
    """Owner of the snapshots of one opening."""

    fs: FileSystem
    directory: str
    segments: LogSegments
    log_start_offset: int
    was_clean: bool
    written: set[int] = attrs.field(factory=set)
    """Offsets of the snapshots that were written. Some may be deleted again."""

    def before(self, scanned: list[LogSegment]) -> tuple[ProducerState, list[LogSegment]]:
        """The state where the scan begins. If what lies before cannot be read, everything is scanned."""
        first = scanned[0].base_offset
        snapshots = self._snapshots()
        try:
            producers = self.at(first)
        except CorruptRecordError as exc:
            LOGGER.warning("%s: scanning the whole log", str(exc))
            scanned, producers = list(self.segments), ProducerState(self.segments.first.base_offset)
            producers.log_start_offset = self.log_start_offset
            first = scanned[0].base_offset
        for offset in snapshots:
            if offset > first:
                drive(self.fs, delete_snapshot(self.directory, offset))
        return producers, scanned

    def at(self, offset: int) -> ProducerState:
        """The state at a segment's base offset: the newest snapshot that is not above it, and the batches since then."""
        log_start = max(self.log_start_offset, self.segments.first.base_offset)
        snapshots = self._snapshots()
        views = [segment.view() for segment in self.segments if segment.base_offset < offset]
        return drive(self.fs, producers_at(self.directory, snapshots, views, log_start, offset))

    def at_end(self, log: Log) -> ProducerState:
        """After a clean stop: the snapshot that was written then. Without any the headers of the whole log are looked through,
        once (Kafka forgets): of a transaction that is open somewhere nothing else would tell."""
        snapshots = [offset for offset in self._snapshots() if offset <= log.log_end_offset]
        is_replayed = not snapshots and log.log_end_offset > log.log_start_offset
        if is_replayed:
            LOGGER.warning(
                "%s has no producer snapshot: reading the batch headers of all %d bytes to write one",
                log.directory,
                log.size_in_bytes,
            )
        views = [segment.view() for segment in self.segments]
        try:
            return drive(self.fs, producers_at(log.directory, snapshots, views, log.log_start_offset, log.log_end_offset))
        except CorruptRecordError as exc:
            if not is_replayed:
                raise
            LOGGER.warning("%s: the producers of %s and their open transactions are lost", str(exc), log.topic_partition)
            return ProducerState(log.log_end_offset)

    def settle(self, log: Log) -> None:
        """Delete snapshots that belong to no segment or lie behind the end, then write one if none says what is known."""
        names = self.fs.list_directory(log.directory)
        snapshots = snapshots_among(names)
        bases = [segment.base_offset for segment in log.segments]
        behind = [offset for offset in snapshots if offset > log.log_end_offset]
        gone = {*behind, *stray_snapshots([offset for offset in snapshots if offset not in behind], bases)}
        for offset in gone:
            drive(self.fs, delete_snapshot(log.directory, offset))
        for offset in snapshots_among(names, BATCHES_SUFFIX):
            if offset not in snapshots:
                drive(self.fs, delete_snapshot(log.directory, offset))
        log.producers.snapshot_offset = max((offset for offset in snapshots if offset not in gone), default=-1)
        if log.size_in_bytes and (not self.was_clean or log.log_end_offset > log.log_start_offset):
            self.take_snapshot(log.producers)

    def take_snapshot(self, producers: ProducerState) -> None:
        """Write one, which is synced later with all that was scanned. A kill between the two files may have left one of another
        state."""
        if producers.is_snapshot_due:
            drive(self.fs, delete_snapshot(self.directory, producers.end_offset))
            drive(self.fs, take_snapshot(self.directory, producers, durable=False))
            self.written.add(producers.snapshot_offset)

    def _snapshots(self) -> list[int]:
        return snapshots_among(self.fs.list_directory(self.directory))


@attrs.frozen(kw_only=True)
class Forcing:
    """The degree of trust in a log. `vouches`: a sync is enough, because the process that wrote the log has seen none fail.
    `syncs` syncs the reads and writes of `fs` to the device, perhaps later (see `later_syncs`)."""

    fs: FileSystem
    syncs: FileSystem
    recovery_point: int
    vouches: bool

    def run(self, log: Log, rebuilt: Sequence[LogSegment], written: set[int]) -> None:
        """Force the rebuilt segments of a log, and the producer snapshots at their base offsets and at those that were
        `written`. Raises LostWriteError, OSError."""
        for segment in dict.fromkeys(rebuilt):
            if segment not in list(log.segments):
                continue
            self._force_log(segment)
            for file in segment.files[1:]:
                with suppress(FileNotFoundError):  # one of a new segment is made with its first entry
                    _sync(self.syncs, file.path)
        bases = {segment.base_offset for segment in rebuilt}
        self._write_snapshots_again(log.directory, bases - written)
        paths = [path for offset in sorted(written | bases) for path in snapshot_paths(log.directory, offset)]
        self._sync_snapshots(paths)
        execute(self.syncs, log.sync_of_snapshot())
        log.snapshot_synced(log.unsynced_snapshot)
        self.syncs.sync_directory(log.directory)
        log.names_synced = log.names_created

    def _force_log(self, segment: LogSegment) -> None:
        """Force a log to the device, and write before what nobody can vouch for: all from the recovery point on."""
        promised, path = self.recovery_point, segment.log.path
        if self.vouches:
            sync_file(self.syncs, path)
            return
        doubtful = drive(self.fs, segment.view().translate_offset(promised))
        start = segment.size if doubtful is None else doubtful.position
        force_batches(self.syncs, path, start, segment.size, promised)

    def _sync_snapshots(self, paths: Sequence[str]) -> None:
        """Those that are there."""
        if not isinstance(self.syncs, LaterSyncs):
            execute(self.syncs, [SyncFile(path) for path in paths])
            return
        for path in paths:
            with suppress(FileNotFoundError):
                self.syncs.note(path)

    def _write_snapshots_again(self, directory: str, offsets: set[int]) -> None:
        """Those that were there before: written at a roll, and maybe never synced."""
        paths = [path for offset in sorted(offsets) for path in snapshot_paths(directory, offset)]
        for path in () if self.vouches else paths:
            if self.fs.file_size(path) is not None:
                write_file_again(self.fs, path)


def _sync(syncs: FileSystem, path: str) -> None:
    """Force a file that nobody keeps open to the device, or have that done later without opening it now."""
    if isinstance(syncs, LaterSyncs):
        syncs.note(path)
    else:
        sync_file(syncs, path)
