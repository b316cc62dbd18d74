"""A partition's log: its segments, its offsets and what is due on disk (Kafka: LocalLog, UnifiedLog).

`Log` is the state, changed by one owner only. Invariant, at every change:
`log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset` and `recovery_point <= log_end_offset`.
`log_start_offset` is the first readable offset; the others are exclusive ends. Readers get an immutable `LogSnapshot`.

Appending is in `append`, reading in `fetch` and `timestamps`, opening in `recovery`, truncation in `changes`. What is left
here moves together: no offset changes without the segments, nor either without what is due on the device.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import attrs

from ....protocol.limits import INT32_MAX, MAX_DECOMPRESSED_BYTES, MAX_PRODUCERS_PER_PARTITION
from ....protocol.types import Isolation, TopicPartition
from ...config import GapPolicy, LogConfig
from ...system.clock import NowMs
from ..disk.diskops import CreateFile, DiskOp, FileHandle, Procedure, RenameEach, SyncDirectory, SyncFile, Unlink, WriteFile
from ..disk.paths import DELETED_SUFFIX, INDEX_SUFFIXES, segment_file
from ..errors import LogOfflineError, WaitsForSpaceError
from ..indexes.index import AbstractIndex
from ..indexes.transaction_index import AbortedTxn, collect_aborted
from ..producers.producer_snapshots import snapshot_paths, take_snapshot
from ..producers.producer_state import ProducerState
from ..segments.segment import LogSegment, LogSegments
from ..segments.segment_view import SegmentView
from ..segments.undated import Undated
from .derived_files import DerivedFiles
from .gaps import OffsetGap
from .leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from .leader_epochs import EpochEntry, LeaderEpochs


@attrs.frozen
class FlushPlan:
    """The operations that sync the log up to `offset` to the device. Nothing changes until the plan is committed."""

    operations: tuple[DiskOp, ...]
    files: tuple[FileHandle, ...]
    offset: int
    active: int
    """Base offset of the segment that was active."""
    truncations: int
    names_created: int
    snapshot: int | None
    """Offset of the producer snapshot that goes with it."""

    @property
    def writes_again(self) -> bool:
        """Return whether a sync has failed before. If so, nothing may be appended while the plan is executed."""
        return any(file.failed_sync is not None for file in self.files)


@attrs.define(eq=False, repr=False)
class Doomed:
    """Files taken out of the log, renamed, to be unlinked once `due_ms` has come."""

    due_ms: int
    files: list[FileHandle]
    paths: list[str]
    indexes: list[AbstractIndex] = attrs.field(factory=list)
    """Whose maps are to be let go."""
    is_renamed: bool = True
    """False: the files have their names, the `.log` comes first, and segments go one after the other (see `retention`)."""


@attrs.define(eq=False, repr=False)
class Log:
    """State of one partition's log. Owner: the partition's actor (before it runs: whoever opened the log)."""

    topic_partition: TopicPartition
    directory: str
    config: LogConfig
    segments: LogSegments
    leader_epochs: LeaderEpochs
    now_ms: NowMs
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    recovery_point: int
    sync_metadata: bool = True
    """False where nothing outlives the process: directories and small files are not synced then."""
    high_watermark_segment: int = 0
    high_watermark_position: int = 0
    names_created: int = 0
    """How many segment files were created so far."""
    names_synced: int = 0
    """Up to which of them the directory is known to be on the device."""
    producers: ProducerState = attrs.field(factory=ProducerState)
    max_producers: int = MAX_PRODUCERS_PER_PARTITION
    """A producer id beyond these is refused until older ones have expired."""
    unsynced_snapshot: int | None = None
    """Offset of a producer snapshot that was written at a roll and is not known to be on the device."""
    derived: DerivedFiles = attrs.field(factory=DerivedFiles)
    gaps: tuple[OffsetGap, ...] = ()
    undated: Undated = ()
    """Records whose timestamps do not say how old they are."""
    trusted_from: int = 0
    """Where the log ended when the clock was last trusted, or at the start."""
    truncations: int = 0
    modified: bool = False
    """Whether anything was written since the log was opened."""
    doomed: list[Doomed] = attrs.field(factory=list)
    offline: LogOfflineError | None = None
    mirror_of: str = ""
    """Source whose log this one mirrors; it then accepts no other appends (see `mirrored`). Empty: none."""
    waiting: WaitsForSpaceError | None = None
    """Why it takes no appends and changes no file until it is opened again; readers are served (see `space_wait`)."""
    _inactive: tuple[tuple[SegmentView, ...], tuple[int, ...], tuple[int, ...]] | None = None
    is_black_hole: bool = False
    """For tests of clients: appends are checked and acknowledged and use offsets, and no byte of them is kept."""
    known_snapshot: LogSnapshot | None = None
    """The log as it is now; None when something has changed since the last one was taken."""

    @property
    def active(self) -> LogSegment:
        return self.segments.active

    @property
    def refusal(self) -> LogOfflineError | WaitsForSpaceError | None:
        """Why nothing is appended, nor any file changed."""
        return self.offline or self.waiting

    @property
    def leader_epoch(self) -> int:
        return self.leader_epochs.latest_epoch or 0

    @property
    def size_in_bytes(self) -> int:
        return self.segments.size_in_bytes

    @property
    def last_stable_offset(self) -> int:
        first_unstable = self.producers.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable, self.log_start_offset)

    def check_invariant(self) -> None:
        start, stable, high, end = self.log_start_offset, self.last_stable_offset, self.high_watermark, self.log_end_offset
        assert start <= stable <= high <= end, f"{self.topic_partition}: {start} <= {stable} <= {high} <= {end}"
        assert self.recovery_point <= end, f"{self.topic_partition}: recovery point {self.recovery_point} > {end}"

    def snapshot(self) -> LogSnapshot:
        """The log as it is now; the same object until something changes."""
        if self.known_snapshot is None:
            if self._inactive is None:
                self._inactive = self._view_inactive()
            views, bases, largest = self._inactive
            self.known_snapshot = LogSnapshot(
                self.topic_partition,
                self.log_start_offset,
                self.last_stable_offset,
                self.high_watermark,
                self.log_end_offset,
                self.leader_epoch,
                self._earliest_epoch(),
                views,
                self.active.view(),
                bases,
                largest,
                self.high_watermark_segment,
                self.high_watermark_position,
                self.truncations,
                self.gaps,
                self._refused_gaps() if self.gaps else (),
                self.leader_epochs.entries,
                self.config.fetch_check_crcs,
            )
        return self.known_snapshot

    def _view_inactive(self) -> tuple[tuple[SegmentView, ...], tuple[int, ...], tuple[int, ...]]:
        views = tuple(segment.view() for segment in self.segments)[:-1]
        largest: list[int] = []
        for view in views:
            largest.append(max(view.max_timestamp, largest[-1] if largest else -1))
        return views, tuple(view.base_offset for view in views), tuple(largest)

    def _refused_gaps(self) -> tuple[OffsetGap, ...]:
        if self.config.gap_policy is GapPolicy.SKIP:
            return ()
        return tuple(gap for gap in self.gaps if not gap.is_accepted)

    def _earliest_epoch(self) -> int:
        epoch = self.leader_epochs.epoch_for_offset(self.log_start_offset)
        return -1 if epoch is None else epoch

    def changed(self, *, segments: bool = False) -> None:
        """Forget the snapshot; with `segments`, also what it says of inactive ones."""
        self.known_snapshot = None
        if segments:
            self._inactive = None

    def set_high_watermark(self, offset: int, segment: int, position: int) -> None:
        """Make everything before `offset`, which lies at `position` of `segment`, readable."""
        self.high_watermark = offset
        self.high_watermark_segment = segment
        self.high_watermark_position = position
        if self.producers.unreplicated:
            self.producers.on_high_watermark(offset)
        if not self.sync_metadata:
            self.producers.on_recovery_point(offset)
        self.known_snapshot = None

    def high_watermark_to_end(self) -> None:
        active = self.segments.active
        self.set_high_watermark(self.log_end_offset, active.base_offset, active.size)

    @property
    def names_unsynced(self) -> bool:
        """Return whether a segment file's name in the directory is not on the device yet."""
        return self.sync_metadata and self.names_created > self.names_synced

    def unsynced(self, offset: int) -> list[LogSegment]:
        """The segments whose bytes below `offset` may not be on the device."""
        if offset <= self.recovery_point:
            return []
        return self.segments.values(self.recovery_point, offset)

    def plan_flush(self, offset: int | None = None) -> FlushPlan:
        """Force all below `offset` (default: the log end) to the device: logs, then the directory for new names.

        Indexes of inactive segments go with them, because recovery trusts them below the recovery point. Those of the
        active one do not: they are rebuilt after an unclean stop.
        """
        end = self.log_end_offset if offset is None else offset
        files: list[FileHandle] = []
        operations = self.sync_of_snapshot()
        for segment in self.unsynced(end):
            for file in [segment.log] if segment is self.active else segment.files:
                files.append(file)
                operations += segment.sync_of(file, self.recovery_point)
        if self.names_unsynced:
            operations.append(SyncDirectory(self.directory))
        return FlushPlan(
            tuple(operations),
            tuple(files),
            end,
            self.active.base_offset,
            self.truncations,
            self.names_created,
            self.unsynced_snapshot,
        )

    def sync_of_snapshot(self) -> list[DiskOp]:
        """Return the operations that sync the newest producer snapshot. It must be on the device before the recovery point
        passes its segment: the batches that it represents may be deleted one day."""
        if self.unsynced_snapshot is None:
            return []
        return [SyncFile(path) for path in snapshot_paths(self.directory, self.unsynced_snapshot)]

    def snapshot_synced(self, offset: int | None) -> None:
        if self.unsynced_snapshot == offset:
            self.unsynced_snapshot = None

    def commit_flush(self, plan: FlushPlan) -> None:
        """The plan's operations are done. Appends, rolls and cuts may have come between.

        A segment that was closed meanwhile has index entries that the plan did not know, and a log that was cut back has
        other bytes: the recovery point does not pass those.
        """
        if plan.truncations == self.truncations:
            reached = plan.offset if plan.active == self.active.base_offset else min(plan.offset, plan.active)
            self.recovery_point = max(self.recovery_point, reached)
            self.producers.on_recovery_point(self.recovery_point)
        self.names_synced = max(self.names_synced, plan.names_created)
        self.snapshot_synced(plan.snapshot)

    def roll(self) -> Procedure[LogSegment]:
        """Close the active segment and start a new one at the log end offset.

        An empty active segment that starts there already is made anew. A stray file of the new name is deleted first. Raises
        SyncFailedError when the closed segment cannot be forced to the device; after another OSError it can be tried again.
        """
        base_offset = self.log_end_offset
        active = self.active
        if base_offset < active.base_offset:
            raise ValueError(
                f"{self.topic_partition}: cannot roll to {base_offset}, the active segment starts at {active.base_offset}"
            )
        is_replaced = base_offset == active.base_offset
        if not is_replaced:
            yield from active.become_inactive()
            if self.recovery_point >= base_offset and self.sync_metadata:
                # No later sync comes by here: the recovery point has passed this segment.
                yield from active.sync(self.recovery_point)
                if active.transaction_index.entries:
                    yield SyncDirectory(self.directory)
            yield from self.derived.note(active)
            if active.transaction_index.entries or self.derived.is_write_due:
                yield from self.write_derived()
        elif active.size:
            raise ValueError(f"{self.topic_partition}: a segment with data already starts at {base_offset}")
        yield from take_snapshot(self.directory, self.producers, durable=False)
        if self.sync_metadata:
            self.unsynced_snapshot = self.producers.snapshot_offset
        segment = yield from self.create_segment(base_offset)
        if is_replaced:
            self.segments.remove(active)
            self.doomed.append(Doomed(self.now_ms(), active.files, []))
        self.segments.add(segment)
        self.changed(segments=True)
        if self.high_watermark == base_offset:
            self.set_high_watermark(base_offset, base_offset, 0)
        return segment

    def create_segment(self, base_offset: int) -> Procedure[LogSegment]:
        """A new, empty segment on disk."""
        segment = self.new_segment(base_offset)
        yield from self.create_files(segment)
        return segment

    def create_files(self, segment: LogSegment) -> Procedure[None]:
        """The log file of a new segment; indexes are made when the first entry is due, and leftovers of their names deleted."""
        for suffix in INDEX_SUFFIXES:
            yield Unlink(f"{self.directory}/{segment_file(segment.base_offset, suffix)}")
        allocate = self.config.segment_bytes if self.config.preallocate else 0
        fd = yield CreateFile(segment.log.path, allocate)
        segment.log.fd = fd
        segment.least_timestamps.nothing_yet()
        self.names_created += 1
        self.modified = True

    def new_segment(self, base_offset: int) -> LogSegment:
        """A segment object with a jitter of its own."""
        created_ms, jitter_ms = self.now_ms(), self.new_jitter_ms()
        return LogSegment.at(self.directory, base_offset, self.config, created_ms=created_ms, jitter_ms=jitter_ms)

    def new_jitter_ms(self) -> int:
        """Return a random time, in ms, by which to roll a segment early."""
        most = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return random.randrange(INT32_MAX) % most if most else 0

    def take_out(self, segments: Iterable[LogSegment], *, successor: LogSegment | None = None) -> Procedure[None]:
        """Remove segments from the map and rename their files and the producer snapshots of their names to `.deleted`, in one
        operation; unlinking them is due after `file.delete.delay.ms`, because readers may still hold them.

        `successor` takes the place of all: the map is never empty while the disk works. Its files are made later.
        """
        due_ms = self.now_ms() + self.config.file_delete_delay_ms
        taken: list[tuple[LogSegment, list[FileHandle], list[str]]] = []
        for segment in segments:
            self.segments.remove(segment)
            files = segment.all_files
            snapshot = snapshot_paths(self.directory, segment.base_offset)
            taken.append((segment, files, [*(file.path for file in files), *snapshot]))
        if successor is not None:
            self.segments.add(successor)
        self.changed(segments=True)
        renamed = set((yield RenameEach([path for _, _, paths in taken for path in paths], DELETED_SUFFIX)))
        for segment, files, paths in taken:
            for file in files:
                file.path += DELETED_SUFFIX
            there = [path + DELETED_SUFFIX for path in paths if path + DELETED_SUFFIX in renamed]
            self.doomed.append(Doomed(due_ms, files, there, list(segment.indexes)))

    def write_leader_epochs(self) -> Procedure[None]:
        path = f"{self.directory}/{LEADER_EPOCH_FILE}"
        yield WriteFile(path, self.leader_epochs.encode(), durable=self.sync_metadata)

    def write_derived(self, *, durable: bool = False, must: bool = False, is_stop: bool = False) -> Procedure[None]:
        """See DerivedFiles.write."""
        durable = durable and self.sync_metadata
        segments, start = list(self.segments), self.log_start_offset
        yield from self.derived.write(self.directory, segments, start, durable=durable, must=must, is_stop=is_stop)

    def close(self) -> Procedure[None]:
        """Write closing index entries, trim, and force everything to the device. If nothing was written, only what DerivedFiles
        still has to note.

        Descriptors are the caller's to close. An index that is not trusted is deleted: the next start rebuilds it.
        """
        active = self.active
        if not self.modified:
            if self.derived.lacks(active):
                yield from active.become_inactive()
                yield from self.derived.note(active)
            yield from self.write_derived(durable=True, is_stop=True)
            yield from self._delete_distrusted()
            return
        unsynced = self.unsynced(self.log_end_offset)
        yield from active.become_inactive()
        yield from self.derived.note(active)
        yield from self.write_derived(durable=True, is_stop=True)
        yield from take_snapshot(self.directory, self.producers, durable=self.sync_metadata)
        if self.unsynced_snapshot is not None:
            for path in snapshot_paths(self.directory, self.unsynced_snapshot):
                yield SyncFile(path)
        self.unsynced_snapshot = None
        for segment in unsynced if active in unsynced else [*unsynced, active]:
            if self.sync_metadata:
                yield from segment.sync(self.recovery_point)
        yield from self._delete_distrusted()
        if self.sync_metadata:
            yield SyncDirectory(self.directory)
        self.recovery_point = self.log_end_offset

    @property
    def is_stop_due(self) -> bool:
        """Return whether `close` has something to do."""
        return (
            self.modified
            or bool(self.distrusted_indexes)
            or self.derived.is_stop_due(list(self.segments), durable=self.sync_metadata)
        )

    @property
    def distrusted_indexes(self) -> list[AbstractIndex]:
        return [index for segment in self.segments for index in segment.indexes if index.is_distrusted]

    def _delete_distrusted(self) -> Procedure[None]:
        for index in self.distrusted_indexes:
            yield Unlink(index.path)

    def drop_maps(self) -> None:
        """Let go of the indexes' maps, each of which holds a descriptor; whoever looks something up makes one again."""
        for segment in self.segments:
            for index in segment.indexes:
                index.buffer = None

    def files(self) -> list[FileHandle]:
        """Every handle of the log, open or not."""
        files: list[FileHandle] = []
        for segment in self.segments:
            files += segment.all_files
        for doomed in self.doomed:
            files += doomed.files
        return files


@attrs.frozen
class LogSnapshot:
    """A log at one moment, for readers. It costs nothing to keep and nothing of it ever changes.

    Files can be deleted or cut under it; the operation on them then raises SnapshotExpiredError and the reader takes a
    new snapshot.
    """

    topic_partition: TopicPartition
    log_start_offset: int
    last_stable_offset: int
    """Where committed reads end: the first offset of the earliest transaction that is not decided yet."""
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    earliest_epoch: int
    """Epoch of the log start offset, -1 when it is not known."""
    inactive: tuple[SegmentView, ...]
    active: SegmentView
    bases: tuple[int, ...]
    """Base offsets of `inactive`."""
    largest_timestamps: tuple[int, ...]
    """For each of `inactive`: the largest timestamp of it and all before it, hence ascending."""
    readable_segment: int
    """Base offset of the segment in which the high watermark lies."""
    readable_position: int
    """Position in it where the high watermark lies: bytes before are readable."""
    truncations: int
    """How often the log was cut back before: bytes behind a cut are others in a later snapshot."""
    gaps: tuple[OffsetGap, ...] = ()
    """Offsets whose records were damaged on disk and taken out, ascending."""
    refused_gaps: tuple[OffsetGap, ...] = ()
    """Those of them that readers are refused, unless they say themselves what they want (topic key gap.policy)."""
    leader_epochs: tuple[EpochEntry, ...] = ()
    check_crcs: bool = False
    """Whether readers check what they answer (topic key fetch.check.crcs)."""
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES

    def __len__(self) -> int:
        return len(self.inactive) + 1

    def segment(self, slot: int) -> SegmentView:
        return self.active if slot == len(self.inactive) else self.inactive[slot]

    def end_offset_of(self, slot: int) -> int:
        """Return where the offsets of a segment end, exclusive."""
        return self.segment(slot + 1).base_offset if slot + 1 < len(self) else self.log_end_offset

    def has_aborted(self, slot: int) -> bool:
        """Return whether there are aborted transactions from this segment on."""
        return any(self.segment(each).transaction_entries for each in range(slot, len(self)))

    def aborted_among(self, slot: int, offset: int, upper_bound: int) -> Procedure[tuple[AbortedTxn, ...]]:
        """The aborted transactions that reach into [offset, upper_bound), which begins in the segment at `slot`: their markers
        can lie in later segments."""
        found: list[AbortedTxn] = []
        for each in range(slot, len(self)):
            entries = yield from self.segment(each).aborted_reaching(offset)
            if collect_aborted(entries, offset, upper_bound, found):
                break
        return tuple(found)

    def slot_of(self, offset: int) -> int:
        """Slot of the segment with the greatest base offset <= `offset`, -1 when it lies before the first."""
        if offset >= self.active.base_offset:
            return len(self.inactive)
        return bisect_right(self.bases, offset) - 1

    def slot_reaching(self, timestamp: int) -> int:
        """Slot of the first segment whose largest timestamp is >= `timestamp`; `len(self)` when none has one."""
        slot = bisect_left(self.largest_timestamps, timestamp)
        if slot == len(self.inactive) and self.active.max_timestamp < timestamp:
            return slot + 1
        return slot

    def readable_end(self, slot: int) -> int:
        """Position up to which the segment's bytes lie below the high watermark."""
        return self.readable_end_of(self.segment(slot))

    def readable_end_of(self, view: SegmentView) -> int:
        """The same for a segment of the snapshot."""
        if view.base_offset < self.readable_segment:
            return view.size
        return self.readable_position if view.base_offset == self.readable_segment else 0

    def end_offset(self, isolation: Isolation) -> int:
        """Return the end of a reader's view, exclusive."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark

    def end_position(self, slot: int, isolation: Isolation) -> Procedure[int]:
        """Position up to which the segment's bytes lie before `end_offset`."""
        stable = self.last_stable_offset
        if isolation is Isolation.READ_UNCOMMITTED or stable == self.high_watermark:
            return self.readable_end(slot)
        last_slot = self.slot_of(stable)
        if slot != last_slot:
            return self.readable_end(slot) if slot < last_slot else 0
        unstable = yield from self.segment(slot).translate_offset(stable)
        return self.readable_end(slot) if unstable is None else unstable.position

    @property
    def size_in_bytes(self) -> int:
        return sum(view.size for view in self.inactive) + self.active.size
