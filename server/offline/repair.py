"""Putting a damaged partition of a stopped directory right. No byte is deleted: what is taken out or replaced is kept.

| damage | what is done |
|---|---|
| bytes that are no batch | moved to a side file, their offsets are a documented gap (see `quarantine`) |
| a batch of which only the first 17 bytes are wrong | they are restored: from the neighbours, the epoch from the checkpoint |
| an index, transaction index or snapshot | made anew from the log; the old file is kept |
| `leader-epoch-checkpoint` | made anew from the batches; if one batch alone contradicts it, that batch is restored |
| a gap that nothing documents | is documented: readers are told, appends are not affected |
| a file that no part of a log has and a server would stumble over | renamed |
| `partition.metadata` | written anew where the topic's id is known |
| `derived.json` | renamed: a server makes it anew |
| checkpoints of the log directory | see `repair_directory` |

Left to people: batches whose CRC is right and whose records are not (their producer sent them so), and directories of another
topic.
Running it again changes nothing more.

Indexes of stopped partitions made anew from their logs: `.index`, `.timeindex`, `.txnindex`.

Every batch is checked on the way. A segment whose log is damaged keeps what it has: positions behind the damage change when it
is repaired. What is replaced was derived, and is derived again: nothing of it is kept.

What `repair` does, as values, and the one thing it does to files that it replaces: it keeps them under another name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs

from ...protocol.errors import RequestError
from ...protocol.records.batch import RECORD_BATCH_OVERHEAD, parse_header
from ..config import LogConfig
from ..storage.directory.inventory import PartitionFiles, SegmentFiles
from ..storage.disk.checkpoints import (
    PARTITION_METADATA_FILE,
    decode_partition_metadata,
    encode_partition_metadata,
    encode_uuid,
    maybe_read,
)
from ..storage.disk.diskops import drive
from ..storage.disk.filesystem import FileSystem, read_at, replace_file, sync_file
from ..storage.disk.paths import CORRUPT_MARK, LOG_SUFFIX, SNAPSHOT_SUFFIXES, base_offset_of
from ..storage.errors import CheckpointError
from ..storage.log.derived_files import FILE_NAME as DERIVED_FILE
from ..storage.log.derived_files import forget_lookups
from ..storage.log.gaps import FILE_NAME as QUARANTINE_FILE
from ..storage.log.gaps import NO_FILE, OffsetGap, encode_gaps, merge_gaps, read_gaps, write_gaps
from ..storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from ..storage.log.leader_epochs import LeaderEpochs, decode_leader_epochs
from ..storage.producers.producer_snapshots import batches_path, crc_of, encode_earlier, encode_snapshot, snapshot_path
from ..storage.producers.producer_state import ProducerState
from ..storage.recovery.quarantine import quarantine
from ..storage.recovery.rebuild import SegmentRebuild, scan_segment
from ..storage.recovery.salvage import STAMP, Damage
from ..storage.segments.segment import LogSegment
from ..system.clock import NowMs, system_now_ms
from .findings import Finding, Observer, Severity
from .small_files_check import SnapshotCheck
from .verify import Known

_SEGMENT_CHECKS: Final = frozenset({"batch", "index", "time index", "transaction index"})


def repair_partition(
    workshop: Workshop, files: PartitionFiles, known: Known, config: LogConfig, findings: Sequence[Finding]
) -> int:
    """Put right what `findings`, of a check of this partition, say; answers the log end offset. Raises OSError."""
    damages = [finding for finding in findings if finding.severity is Severity.DAMAGE]
    return _PartitionRepair(workshop, files, known, config, damages).run()


@attrs.define(eq=False, repr=False)
class _PartitionRepair:
    """The repair of one partition."""

    workshop: Workshop
    files: PartitionFiles
    known: Known
    config: LogConfig
    damages: Sequence[Finding]
    epochs: LeaderEpochs = attrs.field(factory=LeaderEpochs)
    gaps: list[OffsetGap] = attrs.field(factory=list)
    log_end_offset: int = 0
    _is_restamped: bool = False
    """Whether one batch, and not the checkpoint, has the wrong epoch."""

    @property
    def fs(self) -> FileSystem:
        return self.workshop.fs

    def run(self) -> int:
        self._move_strangers()
        self._read_gaps()
        restamped = self._settle_epochs()
        before = self.epochs.encode()
        first_offset = self.files.segments[0].base_offset if self.files.segments else 0
        self.log_end_offset = max(first_offset, self.known.log_start_offset or 0)
        snapshots = SnapshotCheck(self.fs, self.files.path, self.files.snapshots, Observer())
        producers, _ = snapshots.starting_state(first_offset)
        for segment, end_offset in self.files.with_ends():
            self._rewrite_snapshot(segment.base_offset, producers)
            self._repair_segment(segment, end_offset, producers, restamped)
        self._document_gaps()
        self.log_end_offset = max([self.log_end_offset, *(gap.end_offset for gap in self.gaps)])
        self._rewrite_snapshot(self.log_end_offset, producers)
        self._set_snapshots_aside()
        self._write_epochs(before)
        self._repair_metadata()
        for finding in self._of("checkpoint", f"{self.files.path}/{DERIVED_FILE}"):
            self.workshop.keep(finding.file)  # a server makes it anew
        if not self.workshop.dry_run:
            self.fs.sync_directory(self.files.path)
        return self.log_end_offset

    def _of(self, check: str, path: str | None = None) -> list[Finding]:
        return [each for each in self.damages if each.check == check and (path is None or each.file == path)]

    def _move_strangers(self) -> None:
        for finding in self._of("name"):
            if finding.file.startswith(f"{self.files.path}/"):
                self.workshop.keep(finding.file)

    def _settle_epochs(self) -> dict[str, Damage]:
        """Decide whether the checkpoint or one batch is wrong. Returns that batch, by file, with the stamp that it should
        have."""
        path = f"{self.files.path}/{LEADER_EPOCH_FILE}"
        wrong = self._of("leader epoch")
        try:
            known = maybe_read(self.fs, path, decode_leader_epochs)
        except (CheckpointError, ValueError):
            known = None
        if known is None:
            return {}
        self.epochs = known
        if sum(finding.count for finding in wrong) == 1 and wrong[0].position is not None:
            damage = self._restamp(wrong[0].file, wrong[0].position)
            if damage is not None:
                return {wrong[0].file: damage}
        if wrong:
            self.epochs = LeaderEpochs()
        return {}

    def _restamp(self, log_path: str, position: int) -> Damage | None:
        header = parse_header(read_at(self.fs, log_path, position, RECORD_BATCH_OVERHEAD))
        epoch = self.epochs.epoch_for_offset(header.base_offset)
        if epoch is None:
            return None
        stamp = STAMP.pack(header.base_offset, header.batch_length, epoch, header.magic)
        reason = f"leader epoch {header.partition_leader_epoch} for {epoch}"
        return Damage(position, header.size_bytes, reason, header.base_offset, header.next_offset, stamp)

    def _write_epochs(self, before: bytes) -> None:
        path = f"{self.files.path}/{LEADER_EPOCH_FILE}"
        latest = self.epochs.entries[-1] if self.epochs.entries else None
        if latest is not None and latest.start_offset > self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset + 1)
        is_wrong = bool(self._of("checkpoint", path) or (self._of("leader epoch") and not self._is_restamped))
        if is_wrong or (self.epochs.encode() != before and self.fs.file_size(path) is None):
            count = len(self.epochs.entries)
            self.workshop.rewrite(path, self.epochs.encode(), f"{count} epochs, from the batches")

    def _repair_segment(
        self, segment: SegmentFiles, end_offset: int | None, producers: ProducerState, restamped: dict[str, Damage]
    ) -> None:
        log_path = segment.path(LOG_SUFFIX)
        try:
            rebuild = scan(self.fs, segment, self.config, self.epochs, producers, end_offset)
        except RequestError as exc:
            self.workshop.tell("left", log_path, f"{exc.message}. Its CRC is right: the producer sent it so")
            self.log_end_offset = end_offset or self.log_end_offset
            return
        damages = joined(rebuild.damages)
        if log_path in restamped:
            damages = sorted([*damages, restamped[log_path]])
            self._is_restamped = True
        is_wrong = bool(damages) or any(self._is_of(finding, segment) for finding in self.damages)
        if is_wrong:
            self._keep_indexes(segment)
        if damages:
            self._take_out(log_path, damages, end_offset, rebuild.next_offset)
        if is_wrong:
            entries = (
                f"{rebuild.offset_tail.entries} offsets, {rebuild.time_tail.entries} times, {len(rebuild.aborted)} aborted"
            )
            self.workshop.tell("rebuild", log_path, f"indexes rebuilt: {entries}")
            if not self.workshop.dry_run:
                put_in_place(self.fs, rebuild)
        self.log_end_offset = max(self.log_end_offset, rebuild.next_offset)

    def _is_of(self, finding: Finding, segment: SegmentFiles) -> bool:
        name = finding.file.rpartition("/")[2]
        return finding.check in _SEGMENT_CHECKS and base_offset_of(name) == segment.base_offset

    def _take_out(self, log_path: str, damages: list[Damage], end_offset: int | None, next_offset: int) -> None:
        gap_end = end_offset
        if end_offset is None and (self.known.recovery_point or 0) > next_offset:
            gap_end = self.known.recovery_point  # the device had it, so these offsets were acknowledged
        for damage in damages:
            if damage.stamp is not None:
                text = f"position {damage.position}: {damage.reason}: restored"
                self.workshop.tell("restore", log_path, text, damage.first_offset, damage.next_offset)
                continue
            end = max(damage.next_offset, gap_end or 0) if damage is damages[-1] and end_offset is None else damage.next_offset
            text = f"{damage.size} bytes at position {damage.position} go to {_side_file(log_path, damage)}: {damage.reason}"
            self.workshop.tell("quarantine", log_path, text, damage.first_offset, end)
        if not self.workshop.dry_run:
            trailing_end = None if end_offset is not None else gap_end
            self.gaps += quarantine(self.fs, log_path, damages, found_ms=self.workshop.now_ms(), gap_end=trailing_end)

    def _keep_indexes(self, segment: SegmentFiles) -> None:
        """Those that are damaged themselves; the others say nothing that the log does not."""
        for suffix in segment.sizes:
            path = segment.path(suffix)
            if suffix != LOG_SUFFIX and any(finding.file == path for finding in self.damages):
                self.workshop.keep(path)

    def _rewrite_snapshot(self, offset: int, producers: ProducerState) -> None:
        """Both files, for one says which the other is."""
        path, beside = snapshot_path(self.files.path, offset), batches_path(self.files.path, offset)
        if self._of("snapshot", path) or self._of("snapshot", beside):
            entries, text = producers.entries.values(), f"{len(producers.entries)} producers, from the log"
            snapshot = encode_snapshot(entries)
            self.workshop.rewrite(beside, encode_earlier(entries, crc_of(snapshot)), text)
            self.workshop.rewrite(path, snapshot, text)

    def _set_snapshots_aside(self) -> None:
        """Those that no segment begins with and the log does not end with are not made anew: older ones do."""
        bases = [segment.base_offset for segment in self.files.segments]
        for finding in self._of("snapshot"):
            offset = base_offset_of(finding.file.rpartition("/")[2])
            if offset not in bases and offset != self.log_end_offset and finding.file.endswith(SNAPSHOT_SUFFIXES):
                self.workshop.keep(finding.file)

    def _read_gaps(self) -> None:
        """Those that are documented; an unreadable file is made anew from the gaps that are found."""
        path = f"{self.files.path}/{QUARANTINE_FILE}"
        try:
            known = read_gaps(self.fs, self.files.path)
        except CheckpointError:
            known = ()
        kept = [gap if gap.file in (NO_FILE, *self.files.set_aside) else gap._replace(file=NO_FILE) for gap in known]
        self.gaps = kept
        if self._of("checkpoint", path):
            self.workshop.rewrite(path, encode_gaps(kept), f"{len(kept)} gaps")

    def _document_gaps(self) -> None:
        found = [
            OffsetGap(finding.first_offset, finding.next_offset, NO_FILE, self.workshop.now_ms())
            for finding in self._of("gap")
            if finding.first_offset is not None and finding.next_offset is not None
        ]
        if not found:
            return
        self.gaps = list(merge_gaps([*self.gaps, *found]))
        for gap in found:
            text = "no batch holds these offsets: readers see a gap"
            path = f"{self.files.path}/{QUARANTINE_FILE}"
            self.workshop.tell("document", path, text, gap.start_offset, gap.end_offset)
        if not self.workshop.dry_run:
            self.gaps = list(merge_gaps([*read_gaps(self.fs, self.files.path), *found]))
            write_gaps(self.fs, self.files.path, self.gaps)

    def _repair_metadata(self) -> None:
        """An id that differs in one character was damaged; one that differs in more is another topic's."""
        path = f"{self.files.path}/{PARTITION_METADATA_FILE}"
        if not self._of("topic id", path) and not self._of("checkpoint", path):
            return
        try:
            found = maybe_read(self.fs, path, decode_partition_metadata)
        except (CheckpointError, ValueError):
            found = None
        expected = self.known.topic_id
        if expected is None and found is None:
            self.workshop.keep(path)
        elif expected is None or found is None or _differing(encode_uuid(found), encode_uuid(expected)) <= 1:
            topic_id = expected or found
            assert topic_id is not None
            self.workshop.rewrite(path, encode_partition_metadata(topic_id), f"topic id {encode_uuid(topic_id)}")
        else:
            text = "the directory belongs to another topic of that name. Move it away"
            self.workshop.tell("left", path, text)


def _side_file(log_path: str, damage: Damage) -> str:
    return f"{log_path.rpartition('/')[2]}{CORRUPT_MARK}{damage.position}"


def _differing(these: str, those: str) -> int:
    return sum(mine != other for mine, other in zip(these, those, strict=True))


@attrs.frozen(kw_only=True)
class Reindexed:
    """The result of indexing one segment again. `failure` says why its indexes are unchanged; None: they are new."""

    segment: SegmentFiles
    offset_entries: int
    time_entries: int
    aborted: int
    failure: str | None


def reindex(
    fs: FileSystem,
    files: PartitionFiles,
    config: LogConfig,
    producers: ProducerState,
    advance: Callable[[int], None],
    *,
    end_offset: int | None = None,
) -> Iterator[Reindexed]:
    """Make the indexes of every segment anew; `advance` is told how many bytes of log are done. Raises OSError.

    `producers`: the state at the first segment's base offset. `end_offset`: the base offset of the segment behind the last of
    `files`, None when there is none. Memory: the indexes of one segment, the producers of the log.
    """
    forget_lookups(fs, files.path)
    for segment, segment_end in files.with_ends(end_offset):
        try:
            rebuild = scan(fs, segment, config, LeaderEpochs(), producers, segment_end)
            failure = _failure(rebuild)
        except RequestError as exc:
            rebuild, failure = None, exc.message
        if rebuild is not None and failure is None:
            put_in_place(fs, rebuild)
        yield Reindexed(
            segment=segment,
            offset_entries=rebuild.offset_tail.entries if rebuild is not None else 0,
            time_entries=rebuild.time_tail.entries if rebuild is not None else 0,
            aborted=len(rebuild.aborted) if rebuild is not None else 0,
            failure=failure,
        )
        advance(segment.log_bytes)
    fs.sync_directory(files.path)


def scan(
    fs: FileSystem,
    segment: SegmentFiles,
    config: LogConfig,
    epochs: LeaderEpochs,
    producers: ProducerState,
    end_offset: int | None,
) -> SegmentRebuild:
    """Scan the log of a segment and return its rebuild; nothing is changed. Raises OSError, RequestError for a marker that
    cannot be read."""
    log = LogSegment.at(segment.directory, segment.base_offset, config, created_ms=0)
    log.size = segment.log_bytes
    return scan_segment(fs, log, epochs, producers, end_offset=end_offset)


def put_in_place(fs: FileSystem, rebuild: SegmentRebuild) -> None:
    """Write the indexes and force them to the device; their names, the caller. Raises OSError."""
    drive(fs, rebuild.put_in_place())
    segment = rebuild.segment
    for path in (segment.offset_index.path, segment.time_index.path, segment.transaction_index.path):
        if fs.file_size(path) is not None:
            sync_file(fs, path)


def _failure(rebuild: SegmentRebuild) -> str | None:
    if not rebuild.damages:
        return None
    first = rebuild.damages[0]
    return f"the log is damaged at position {first.position}: {first.reason}"


KEPT_SUFFIX: Final = ".corrupt-0"


@attrs.frozen(kw_only=True)
class Action:
    """An action that was done; in a dry run, an action that would be done."""

    kind: str
    """`complete`, `quarantine`, `restore`, `rebuild`, `set aside`, `rewrite`, `document`; `left`: cannot be repaired here."""
    file: str
    text: str
    first_offset: int | None = None
    next_offset: int | None = None


@attrs.frozen
class Workshop:
    """Does what is asked, or in a dry run only tells of it. Owner: one repair."""

    fs: FileSystem
    _acted: Callable[[Action], None]
    dry_run: bool = attrs.field(kw_only=True)
    now_ms: NowMs = system_now_ms

    def tell(self, kind: str, file: str, text: str, first_offset: int | None = None, next_offset: int | None = None) -> None:
        self._acted(Action(kind=kind, file=file, text=text, first_offset=first_offset, next_offset=next_offset))

    def keep(self, path: str) -> None:
        """Rename a file out of the way; nothing when there is none. Raises OSError."""
        if self.fs.file_size(path) is None:
            return
        target = f"{path}{KEPT_SUFFIX}"
        number = 1
        while self.fs.file_size(target) is not None:
            number += 1
            target = f"{path}{KEPT_SUFFIX}.{number}"
        self.tell("set aside", path, f"kept as {target.rpartition('/')[2]}")
        if not self.dry_run:
            self.fs.rename(path, target)

    def rewrite(self, path: str, data: bytes, text: str, *, private: bool = False) -> None:
        """Put a small file in place, and keep the one that is there. `private`: only its owner may read it. Raises OSError."""
        self.keep(path)
        self.tell("rewrite", path, text)
        if not self.dry_run:
            replace_file(self.fs, path, data, private=private)


def joined(damages: Sequence[Damage]) -> list[Damage]:
    """Damages that follow each other without a good byte between them as one; those with a stamp stay by themselves."""
    result: list[Damage] = []
    for damage in damages:
        last = result[-1] if result else None
        if last is None or last.stamp is not None or damage.stamp is not None or last.position + last.size != damage.position:
            result.append(damage)
            continue
        result[-1] = Damage(
            last.position,
            last.size + damage.size,
            last.reason,
            min(last.first_offset, damage.first_offset),
            max(last.next_offset, damage.next_offset),
        )
    return result
