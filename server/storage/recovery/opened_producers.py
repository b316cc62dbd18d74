"""The producers of a log that is being opened: taken from a snapshot and the batches behind it; and their snapshots."""

from __future__ import annotations

import logging
from typing import Final

import attrs

from ....protocol.errors import CorruptRecordError
from ..disk.diskops import drive
from ..disk.filesystem import FileSystem
from ..disk.paths import BATCHES_SUFFIX
from ..log.log import Log
from ..producers.producer_snapshots import delete_snapshot, producers_at, snapshots_among, stray_snapshots, take_snapshot
from ..producers.producer_state import ProducerState
from ..segments.segment import LogSegment, LogSegments

LOGGER: Final = logging.getLogger(__name__)


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
            LOGGER.warning("%s; the whole log is scanned", str(exc))
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
                "%s has no producer snapshot; the headers of all of its %d bytes are looked through, and one is written",
                log.directory,
                log.size_in_bytes,
            )
        views = [segment.view() for segment in self.segments]
        try:
            return drive(self.fs, producers_at(log.directory, snapshots, views, log.log_start_offset, log.log_end_offset))
        except CorruptRecordError as exc:
            if not is_replayed:
                raise
            LOGGER.warning("%s; the producers of %s, and what they have open, are forgotten", str(exc), log.topic_partition)
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
