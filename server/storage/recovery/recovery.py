"""Opening a log from its directory, and putting it right after an unclean stop (Kafka: LogLoader, LogSegment.recover).

After a clean stop nothing is scanned: every inactive index is trimmed, so its length says how many entries it has. Of each
segment the part behind its last index entry is looked at. An index that is missing or contradicts that is rebuilt.

After an unclean stop every segment from the recovery point's on is scanned (see `salvage`). Damage before good batches is taken
out and kept beside the log, its offsets are a gap from then on (see `quarantine`); damage behind the last good batch is a torn
append and is cut off, unless the recovery point promised what was there. Indexes and producers are rebuilt. Then all that was
scanned is forced to the device, what lies above the recovery point by writing it again (see `write_again`): the page cache may
have what the device refused before the stop. Only then recovery point and high watermark are the log end offset: a checkpoint
is maybe a minute old and must hide nothing that was acknowledged; nothing may be read that the next power cut could take back.
(Kafka cuts at the first damage and takes all later segments out, and restores the high watermark from its checkpoint.)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import attrs

from ....protocol.errors import CorruptRecordError
from ....protocol.limits import INT32_MAX, INT64_MAX, MAX_PRODUCERS_PER_PARTITION, MAX_SEGMENT_BYTES
from ....protocol.records.batch import check_batch, gap_marker
from ....protocol.types import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP, TopicPartition
from ...config import LogConfig
from ...system.clock import NowMs
from ..disk.checkpoints import LOG_START_FILE
from ..disk.diskops import Procedure, drive
from ..disk.filesystem import FileSystem, read_at
from ..disk.paths import may_be_trimmed
from ..errors import CorruptIndexError, LostWriteError, SegmentOffsetOverflowError, StorageError
from ..log.changes import truncate_fully_and_start_at
from ..log.derived_files import FILE_NAME as DERIVED_FILE
from ..log.derived_files import DerivedFiles
from ..log.gaps import NO_FILE, OffsetGap, end_behind_gaps, gap_at, gaps_within, merge_gaps, write_gaps
from ..log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from ..log.log import Log
from ..producers.producer_state import ProducerState
from ..segments.segment import LogSegment, LogSegments
from ..segments.segment_view import NOTHING
from .load import Ends, LoadedFiles, contradicted_epoch, load_files, load_indexes
from .quarantine import MOST_TAILS, contain, cut_off, delete_oldest_tails, set_aside, split_overflow
from .rebuild import Forcing, OpenedProducers, SegmentRebuild, scan_segment

LOGGER: Final = logging.getLogger(__name__)
"""Errors are logged as text: a handler that keeps records would keep the traceback, and with it the maps of indexes."""

MOST_SCANS: Final = 3
"""Of one log. A page that the kernel drops between the scan and the writing is seen as lost by the next scan."""


@attrs.frozen(kw_only=True)
class OpenLog:
    """The request to open a log: its place, its configuration, and the facts that its log directory remembers."""

    topic_partition: TopicPartition
    directory: str
    config: LogConfig
    now_ms: NowMs
    was_clean: bool
    stopped_here: bool = False
    """Whether the clean stop was one of this program: then what it keeps beside the log is as new as the checkpoints."""
    recovery_point: int = 0
    log_start_offset: int = 0
    sync_metadata: bool = True
    max_producers: int = MAX_PRODUCERS_PER_PARTITION


def open_log(fs: FileSystem, request: OpenLog, syncs: FileSystem | None = None) -> Log:
    """The log in `request.directory`, which exists. Blocks; no descriptor stays open.

    `syncs` brings to the device what was scanned; it may do so later (see `later_syncs`), and then the log counts once that is
    done. Where anything was damaged it is not asked, but `fs`.

    Raises OSError when the disk fails, StorageError or CorruptRecordError when the files cannot be a log.
    """
    scans = 1
    while True:
        try:
            return _Opening(fs, request, fs if syncs is None else syncs).run()
        except SegmentOffsetOverflowError as exc:
            syncs = fs
            LOGGER.warning("%s: splitting the segment", str(exc))
        except LostWriteError as exc:
            if scans == MOST_SCANS:
                raise
            scans, syncs = scans + 1, fs
            LOGGER.warning("%s: scanning the log again", str(exc))


class _Opening:
    """An attempt to open a log."""

    def __init__(self, fs: FileSystem, request: OpenLog, syncs: FileSystem) -> None:
        self.fs = fs
        self.syncs = syncs
        self.request = request
        self.durable = request.sync_metadata
        self.loaded: LoadedFiles = load_files(fs, request.directory, request.config, request.now_ms())
        self.segments = self.loaded.segments
        self.epochs = self.loaded.epochs
        self.gaps = self.written_gaps = self.loaded.gaps
        self.epochs_before = self.epochs.entries
        self.ends: dict[int, Ends] = {}
        """What was seen of segments, by base offset."""
        self.rebuilt: list[LogSegment] = []
        self.behind_cut: list[LogSegment] = []
        self.is_created = False
        """Whether there was no segment."""
        self.derived, log_start_offset = DerivedFiles.load(fs, request.directory, was_clean=request.was_clean)
        self._settle_log_start(log_start_offset)
        self.producers = OpenedProducers(fs, request.directory, self.segments, self.request.log_start_offset, request.was_clean)

    def _settle_log_start(self, known: int) -> None:
        """The log start offset that the partition keeps for itself counts if it is the larger one and the log reaches it: a
        Kafka that has cut the log meanwhile knew nothing of it. Nobody deletes records of the server's own topics.

        After a clean stop of this program the smaller one counts too, unless the file is lost: it is written before the
        checkpoint's, and what that one hides would be deleted next.

        A log without segments begins at the largest start that anything remembers, its leader epochs too: a power cut may have
        taken the name of its only segment, and no offset is given out twice.
        """
        request = self.request
        if not self.segments:
            self.request = attrs.evolve(
                request, log_start_offset=max(request.log_start_offset, known, self.epochs.start_offset)
            )
            return
        if not may_be_trimmed(request.topic_partition.topic):
            return
        first, checkpoint = self.segments.first.base_offset, request.log_start_offset
        is_raised = known > max(checkpoint, first) and drive(self.fs, _reaches(self.segments, known))
        is_lowered = request.stopped_here and max(known, first) < checkpoint and not self._are_facts_lost()
        if not is_raised and not is_lowered:
            return
        LOGGER.warning(
            "%s: %s/%s records the log start offset %d, %s/%s records %d: using the %s one, and repairing the checkpoint",
            request.topic_partition,
            request.directory.rpartition("/")[0],
            LOG_START_FILE,
            checkpoint,
            request.directory,
            DERIVED_FILE,
            known,
            "larger" if is_raised else "smaller",
        )
        self.request = attrs.evolve(request, log_start_offset=known)

    def _are_facts_lost(self) -> bool:
        """Return whether a clean stop of this program has left `derived.json`, and nothing can be read of it any more."""
        if self.derived.is_missing:
            return any(self.fs.file_size(segment.offset_index.path) for segment in self.segments)
        return self.derived.is_unreadable

    def run(self) -> Log:
        fs, request = self.fs, self.request
        start = INT64_MAX if request.was_clean else request.recovery_point
        scanned = self.segments.values(start, INT64_MAX) if start < INT64_MAX else []
        taken = [segment for segment in self.segments if segment not in scanned]
        for segment in taken:
            self._take_over(segment)
        if why := contradicted_epoch(fs, self.epochs, taken, self.ends, request.log_start_offset):
            self._read_epochs(taken, why)
        if scanned:
            self.epochs.truncate_from_end(scanned[0].base_offset)  # batches say the rest
        producers = ProducerState()
        if scanned:
            producers, scanned = self.producers.before(scanned)
            self._scan(scanned, producers)
        for path in self.loaded.orphans:
            LOGGER.warning("deleting %s, which has no log: records that it may have pointed to are lost", path)
            fs.unlink(path)
        log = self._make_log()
        if not log.truncations:
            log.producers = self.producers.at_end(log) if request.was_clean else producers
            log.producers.end_offset = log.log_end_offset
        self._close_gap_at_end(log)
        self._settle(log)
        return log

    def _take_over(self, segment: LogSegment) -> None:
        """Take the indexes over from their files; rebuild them from the log when one is missing or contradicts itself."""
        following = self.segments.higher(segment.base_offset)
        try:
            ends = drive(self.fs, load_indexes(segment, None if following is None else following.base_offset))
            drive(self.fs, self.derived.check(segment))
            self._check_marker(segment, ends.next_offset - 1)
            self.ends[segment.base_offset], next_offset = ends, ends.next_offset
        except (CorruptIndexError, CorruptRecordError) as exc:
            LOGGER.warning("%s: scanning the segment and rebuilding its indexes", str(exc))
            next_offset = self._rebuild(segment)
        self.loaded.check_hole(segment, next_offset, self.request.log_start_offset)

    def _check_marker(self, segment: LogSegment, last_offset: int) -> None:
        """The batch that covers a gap at the end of a segment was not promised when it was written, but the segment behind it
        may be there: a power cut may have torn it. Raises CorruptRecordError."""
        if not segment.size or gap_at(self.gaps, last_offset) is None:
            return
        try:
            found = drive(self.fs, segment.view().translate_offset(last_offset))
        finally:
            segment.offset_index.buffer = None
        if found is not None:
            data = read_at(self.fs, segment.log.path, found.position, found.header.size_bytes)
            check_batch(memoryview(data), found.header)

    def _rebuild(self, segment: LogSegment) -> int:
        """Scan a segment whose bytes were promised: nothing is cut, damage at its end is a gap too. Answers its end offset."""
        following = self.segments.higher(segment.base_offset)
        end_offset = None if following is None else following.base_offset
        producers = self.producers.at(segment.base_offset)
        rebuild = scan_segment(self.fs, segment, self.epochs, producers, end_offset=end_offset)
        self._check_file(rebuild, is_last=False)
        self._finish(rebuild, gap_end=self.request.recovery_point if end_offset is None else end_offset)
        return rebuild.next_offset

    def _read_epochs(self, taken: Sequence[LogSegment], why: str) -> None:
        """Take the leader epochs from the batches. Epochs do not descend, so a segment that ends with the epoch of the segment
        before it need not be scanned."""
        LOGGER.warning("%s/%s: %s: reading leader epochs from the batches", self.request.directory, LEADER_EPOCH_FILE, why)
        self.epochs.clear()
        for segment in taken:
            if self.ends[segment.base_offset].last_epoch not in (NO_PARTITION_LEADER_EPOCH, self.epochs.latest_epoch):
                self._rebuild(segment)

    def _scan(self, segments: Sequence[LogSegment], producers: ProducerState) -> None:
        """Scan to the end of the log. A damage that no good batch follows waits until it is known to be the end."""
        pending: list[SegmentRebuild] = []
        for segment in segments:
            following = self.segments.higher(segment.base_offset)
            if producers.end_offset <= segment.base_offset and segment is not self.segments.first:
                producers.end_offset = segment.base_offset
                self.producers.take_snapshot(producers)
            end_offset = None if following is None else following.base_offset
            torn_from = self.request.recovery_point
            rebuild = scan_segment(self.fs, segment, self.epochs, producers, end_offset=end_offset, torn_from=torn_from)
            self._check_file(rebuild, is_last=following is None)
            if rebuild.batches:
                for earlier in pending:
                    self._finish(earlier)
                pending.clear()
            if rebuild.trailing or not rebuild.batches:
                pending.append(rebuild)
            else:
                self._finish(rebuild)
        self._finish_end(pending)

    def _finish_end(self, pending: Sequence[SegmentRebuild]) -> None:
        """The last segments, of which at most the first has a good batch."""
        damaged = next((slot for slot, rebuild in enumerate(pending) if rebuild.trailing), len(pending))
        promised = self.request.recovery_point
        end = pending[damaged].next_offset if damaged < len(pending) else promised
        if end < promised <= end + INT32_MAX:
            for rebuild in pending:
                self._finish(rebuild, gap_end=promised if rebuild is pending[-1] else None)
            return
        for rebuild in pending[:damaged]:
            self._finish(rebuild)
        if damaged < len(pending):
            self._finish(cut_off(self.fs, pending[damaged], durable=self.durable))
        for rebuild in pending[damaged + 1 :]:
            segment = rebuild.segment
            set_aside(self.fs, segment.log.path, 0, segment.size, durable=self.durable)
            self.behind_cut.append(segment)
            LOGGER.warning("removing %s from the log: it is after the cut and has no good batch", segment.log.path)

    def _finish(self, rebuild: SegmentRebuild, *, gap_end: int | None = None) -> None:
        """Take what is damaged out of the segment, and let it have its indexes."""
        found = contain(
            self.fs,
            rebuild,
            found_ms=self.request.now_ms(),
            gap_end=gap_end,
            log_start_offset=self.request.log_start_offset,
            durable=self.durable,
        )
        self.gaps = merge_gaps([*self.gaps, *found])
        self.rebuilt.append(rebuild.segment)
        self.ends[rebuild.segment.base_offset] = Ends(rebuild.first_timestamp, rebuild.next_offset, rebuild.last_epoch)

    def _check_file(self, rebuild: SegmentRebuild, *, is_last: bool) -> None:
        """Raises SegmentOffsetOverflowError when it was split, StorageError when the file is not this segment's."""
        if rebuild.damages:
            self.syncs = self.fs
        misplaced = [damage for damage in rebuild.damages if damage.is_misplaced]
        if not misplaced:
            return
        path = rebuild.segment.log.path
        # Behind an unclean stop a single one may be a flipped bit.
        only_begun = len(misplaced) == 1 and not self.request.was_clean
        split_overflow(self.fs, rebuild, misplaced, only_begun=only_begun, durable=self.durable)
        if len(misplaced) > 1 and not (is_last and rebuild.batches):
            following = self.segments.higher(rebuild.segment.base_offset)
            behind = "" if following is None else f" and before {following.log.path}"
            raise StorageError(
                f"{path}: {len(misplaced)} whole batches, the first at position {misplaced[0].position}, have "
                f"impossible offsets{behind}: {misplaced[0].reason}. A file of another log or another segment has "
                "this name: replace it with the right one or move it away"
            )

    def _make_log(self) -> Log:
        request = self.request
        log = Log(
            topic_partition=request.topic_partition,
            directory=request.directory,
            config=request.config,
            segments=self.segments,
            leader_epochs=self.epochs,
            now_ms=request.now_ms,
            log_start_offset=request.log_start_offset,
            log_end_offset=request.log_start_offset,
            high_watermark=request.log_start_offset,
            recovery_point=0,
            sync_metadata=request.sync_metadata,
            max_producers=request.max_producers,
            derived=self.derived,
        )
        drive(self.fs, log.take_out(self.behind_cut))
        if not self.segments:
            self.is_created = True
            log.segments.add(drive(self.fs, log.create_segment(request.log_start_offset)))
            close_files(self.fs, log)
            if request.log_start_offset and self.durable:
                self.syncs.sync_directory(log.directory)
                log.names_synced = log.names_created
        _find_end(self.fs, log, request.log_start_offset, self.ends.get(log.active.base_offset))
        return log

    def _close_gap_at_end(self, log: Log) -> None:
        """Offsets that were promised and lost at the end of the log are not given out again: a control batch has them, or a
        segment starts behind them.

        After a clean stop the checkpoint promised all of the log. (After another one it may be older than a truncation, but a
        log without any segment was not truncated.)
        """
        promised = self.request.recovery_point
        is_promised = self.request.was_clean or self.is_created
        if is_promised and log.log_end_offset < promised <= log.log_end_offset + INT32_MAX:
            lost = OffsetGap(log.log_end_offset, promised, NO_FILE, self.request.now_ms())
            LOGGER.warning(
                "%s ends at offset %d but once reached offset %d: offsets %d to %d are lost",
                log.active.log.path,
                log.log_end_offset,
                promised,
                lost.start_offset,
                promised - 1,
            )
            self.gaps = merge_gaps([*self.gaps, lost])
        end = end_behind_gaps(self.gaps, log.log_end_offset)
        covering = None if log.truncations else self._cover_end(log, end)
        if log.log_end_offset < end <= log.log_end_offset + INT32_MAX:
            log.log_end_offset = log.producers.end_offset = end
            if covering is not log.active:
                self.rebuilt.append(log.active)
                drive(self.fs, log.roll())
        close_files(self.fs, log)
        log.gaps = gaps_within(self.gaps, log.log_start_offset, log.log_end_offset)
        self._write_gaps(log, log.gaps)

    def _write_gaps(self, log: Log, gaps: tuple[OffsetGap, ...]) -> None:
        if gaps != self.written_gaps:
            write_gaps(self.fs, log.directory, gaps, durable=self.durable)
            self.written_gaps = gaps

    def _cover_end(self, log: Log, end: int) -> LogSegment | None:
        """Let a control batch hold the offsets of a gap up to `end`, the end of the log: Kafka's clients reach the end of a log
        only through a batch. The gap is written down first: where a power cut tears the batch, that tells (see
        `_check_marker`). Answers the segment that has the batch now; None when none is written."""
        last = next((segment for segment in reversed(list(log.segments)) if segment.size), log.segments.first)
        start = self.ends[last.base_offset].next_offset if last.base_offset in self.ends else last.base_offset
        if not log.log_start_offset <= start < end == end_behind_gaps(self.gaps, start):
            return None
        segment = log.segments.floor(start)
        if segment is None or end - segment.base_offset > INT32_MAX:
            return None
        epoch = self._epoch_of_gap(start, end)
        marker = gap_marker(base_offset=start, last_offset=end - 1, partition_leader_epoch=epoch)
        if segment.size + len(marker) > MAX_SEGMENT_BYTES:
            return None
        self._write_gaps(log, gaps_within(self.gaps, log.log_start_offset, end))
        cursor = segment.cursor()
        segment.plan_append(
            cursor,
            largest_offset=end - 1,
            largest_timestamp=NO_TIMESTAMP,
            offset_of_max_timestamp=end - 1,
            buffers=(marker,),
            size=len(marker),
            least_timestamp=NOTHING,
        )
        writes, _ = segment.writes_for(cursor)
        drive(self.fs, (each for each in writes))
        segment.commit(cursor)
        log.modified = True
        self.rebuilt.append(segment)
        return segment

    def _epoch_of_gap(self, start: int, end: int) -> int:
        """The leader epoch of a batch with the offsets of a gap. One that started within starts behind it."""
        latest = self.epochs.latest_epoch
        self.epochs.truncate_from_end(start + 1)
        epoch = self.epochs.latest_epoch or 0
        self.epochs.assign(epoch, start)
        if latest is not None:
            self.epochs.begin(latest, end)
        return epoch

    def _settle(self, log: Log) -> None:
        fs = self.fs
        if self.epochs_before and self.epochs_before[-1].start_offset >= log.log_end_offset:
            # No batch has it yet, or a power cut took those that had. Clients may know it.
            log.leader_epochs.begin(self.epochs_before[-1].epoch, log.log_end_offset)
        log.leader_epochs.go_on_from(log.log_end_offset)
        log.leader_epochs.truncate_from_start(log.log_start_offset)
        if log.leader_epochs.entries != self.epochs_before:
            drive(fs, log.write_leader_epochs())
        self.producers.settle(log)
        if self.rebuilt or self.behind_cut or self.producers.written:
            forcing = Forcing(fs=fs, syncs=self.syncs, recovery_point=self.request.recovery_point, vouches=self._vouches)
            forcing.run(log, self.rebuilt, self.producers.written)
            if gone := delete_oldest_tails(fs, log.directory, log.gaps):
                LOGGER.warning(
                    "%s: keeping the bytes of the newest %d torn appends, deleted: %s", log.directory, MOST_TAILS, gone
                )
        self._settle_derived(log)
        log.recovery_point = log.log_end_offset
        log.producers.on_recovery_point(log.recovery_point)
        log.high_watermark_to_end()
        log.check_invariant()

    def _settle_derived(self, log: Log) -> None:
        """Know what the indexes say that were rebuilt, and the transaction indexes that Kafka wrote."""
        for segment in log.segments:
            if segment in self.rebuilt or (segment.transaction_index.entries and not self.derived.is_known(segment)):
                drive(self.fs, self.derived.note(segment, is_closed=segment is not log.active))
        drive(self.fs, log.write_derived(durable=True))

    @property
    def _vouches(self) -> bool:
        """Return whether a sync is enough. It is not after an unclean stop: a failed sync may have ended the process."""
        return self.request.was_clean or not self.durable


def _reaches(segments: LogSegments, offset: int) -> Procedure[bool]:
    """Return whether an offset is in the log, or at its end."""
    active = segments.active
    if active.base_offset >= offset:
        return True
    try:
        return (yield from active.records.find_batch(lambda header: header.next_offset >= offset)) is not None
    except CorruptRecordError:
        return False


def close_files(fs: FileSystem, log: Log) -> None:
    """Close every descriptor that the log has open."""
    for file in log.files():
        if file.fd is not None:
            fs.close(file.fd)
            file.fd = None


def _find_end(fs: FileSystem, log: Log, log_start_checkpoint: int, ends: Ends | None) -> None:
    """Log end and log start offset from the segments and the checkpoint; make the active segment, of which `ends` are known,
    ready for appends."""
    log.log_end_offset = drive(fs, log.active.read_next_offset()) if ends is None else ends.next_offset
    log.log_start_offset = log.high_watermark = max(log_start_checkpoint, log.segments.first.base_offset)
    if log.log_end_offset < log.log_start_offset:
        kept = [
            set_aside(fs, segment.log.path, 0, segment.size, durable=log.sync_metadata)
            for segment in log.segments
            if segment.size
        ]
        LOGGER.warning(
            "%s: the log ends at %d, before its log start offset %d: continuing empty from there%s",
            log.topic_partition,
            log.log_end_offset,
            log.log_start_offset,
            f", keeping its old data in {', '.join(kept)}" if kept else "",
        )
        drive(fs, truncate_fully_and_start_at(log, log.log_start_offset))
        close_files(fs, log)
        ends = None
    active = log.active
    active.roll_jitter_ms = log.new_jitter_ms()
    active.offset_index.grow()
    active.time_index.grow()
    if ends is not None and ends.first_timestamp is not None:
        active.rolling_based_timestamp = ends.first_timestamp
    else:
        drive(fs, active.load_rolling_based_timestamp())
