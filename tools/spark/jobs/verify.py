"""Verify: every CRC, record and index entry of a stopped log directory, a task for each segment.

What is checked of a segment is what `triolog verify` checks (`server.offline.segment_check`). Producers are known where a
segment begins with a snapshot, as a rolled one does; without it neither snapshots nor the transaction index are compared with
the log. Gaps between segments, names, checkpoints, topic ids and the files of the directory are looked at by the driver.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from ....server.offline.findings import Finding, Quiet, Reporter, Severity
from ....server.offline.segment_check import Gap, LogState, SegmentCheck
from ....server.offline.small_files_check import (
    SnapshotCheck,
    check_derived,
    check_epoch_ends,
    check_gaps,
    check_leader_epochs,
    check_topic_id,
)
from ....server.offline.verify import (
    Known,
    check_names,
    check_offsets,
    check_partition,
    is_swapping,
    read_directory_files,
    report_gaps,
)
from ....server.storage.directory.inventory import PartitionFiles, StoppedDirectory
from ....server.storage.disk.filesystem import OsFileSystem
from ....server.storage.disk.paths import LOG_SUFFIX
from ...export.manifest import Manifest
from ...export.pieces import Piece, Result
from .runner import Progress, no_progress, run_pieces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@attrs.frozen(kw_only=True)
class SegmentToVerify:
    """One segment and what has to be known of its surroundings. Picklable."""

    files: PartitionFiles
    """The partition's, with this segment and its snapshots alone."""
    end_offset: int | None
    """The next segment's base offset."""
    log_start_offset: int
    was_closed: bool
    is_compacted: bool
    walk: bool
    lost_end_offset: int
    """Behind what is documented as lost at the end of the log, whose offsets count as given out; 0: nothing is."""


@attrs.frozen(kw_only=True)
class Verified:
    """What there was to find."""

    findings: tuple[Finding, ...]
    partitions: int
    segments: int
    batches: int
    records: int
    log_bytes: int

    @property
    def damages(self) -> int:
        """Findings that are damage and no remark."""
        return sum(finding.severity is Severity.DAMAGE for finding in self.findings)


class Collected(Quiet):
    """An observer that keeps what is found."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def found(self, finding: Finding) -> None:
        """Keep it."""
        self.findings.append(finding)


def verify(
    spark: SparkSession,
    directory: StoppedDirectory,
    *,
    walk: bool = True,
    manifest: Path | None = None,
    progress: Progress = no_progress,
) -> Verified:
    """Check a directory that nobody changes meanwhile: callers hold its lock. JobError, ManifestError, OSError."""
    observer = Collected()
    says = read_directory_files(OsFileSystem(), directory, Reporter(observer))
    sizes = {files.path: [[each.base_offset, each.log_bytes] for each in files.segments] for files in directory.partitions}
    settings = {"directory": directory.path, "walk": walk}
    kept = Manifest.open(manifest, "verify", settings, files=sizes, is_repeatable=True)
    pieces = [piece for files in directory.partitions for piece in _pieces(files, says.of(files.topic_partition), walk=walk)]
    results = dict(
        zip([piece.name for piece in pieces], run_pieces(spark, pieces, verify_segment, kept, progress), strict=True)
    )
    kept.complete()
    topic_ids: dict[str, uuid.UUID] = {}
    for files in directory.partitions:
        topic = files.topic_partition.topic
        of_segments = [results[segment.path(LOG_SUFFIX)] for segment in files.segments]
        topic_id = _check_partition(files, says.of(files.topic_partition, topic_ids.get(topic)), of_segments, observer)
        if topic_id is not None:
            topic_ids.setdefault(topic, topic_id)
    return Verified(
        findings=tuple(observer.findings),
        partitions=len(directory.partitions),
        segments=len(pieces),
        batches=sum(result["batches"] for result in results.values()),
        records=sum(result["records"] for result in results.values()),
        log_bytes=sum(files.log_bytes for files in directory.partitions),
    )


def verify_segment(what: SegmentToVerify) -> Result:
    """In a task: check one segment. OSError."""
    fs, observer = OsFileSystem(), Collected()
    files, end = what.files, what.end_offset
    (segment,) = files.segments
    snapshots = SnapshotCheck(fs, files.path, files.snapshots, Reporter(observer))
    producers, is_known = snapshots.starting_state(segment.base_offset)
    state = LogState(
        producers=producers,
        snapshots=snapshots,
        epochs=check_leader_epochs(fs, files, Reporter(Quiet())),
        log_start_offset=what.log_start_offset,
        next_offset=segment.base_offset,
        walk=what.walk,
        has_all_producers=is_known,
        is_compacted=what.is_compacted,
    )
    SegmentCheck(fs, segment, state, end_offset=end, was_closed=what.was_closed).run(Reporter(observer))
    state_end = state.next_offset
    if what.lost_end_offset > state_end:
        state.has_all_producers, state_end = False, what.lost_end_offset
    last_offset = max(state_end, state.log_start_offset) if end is None else max(state_end, end - 1)
    is_complete = state.has_all_producers and not state.is_compacted
    snapshots.compare(last_offset, state.producers, state.needed, state.log_start_offset, is_complete=is_complete)
    if end is None:
        snapshots.finish(last_offset)
    return {
        "batches": state.batches,
        "records": state.records,
        "next_offset": state.next_offset,
        "is_compacted": state.is_compacted,
        "gaps": [attrs.asdict(gap) for gap in state.gaps],
        "findings": [{**attrs.asdict(finding), "severity": finding.severity.value} for finding in observer.findings],
    }


def _pieces(files: PartitionFiles, known: Known, *, walk: bool) -> Iterator[Piece[SegmentToVerify]]:
    bases = [segment.base_offset for segment in files.segments]
    documented = check_gaps(OsFileSystem(), files, Reporter(Quiet()))
    begins = [-1, *bases[1:]]  # the first one looks at what lies below the log, too
    for segment, begin, end in zip(files.segments, begins, [*bases[1:], None], strict=False):
        snapshots = tuple(each for each in files.snapshots if begin <= each and (end is None or each < end))
        what = SegmentToVerify(
            files=attrs.evolve(files, segments=(segment,), snapshots=snapshots, orphans=(), set_aside=(), foreign=()),
            end_offset=end,
            log_start_offset=max(bases[0], known.log_start_offset or 0),
            was_closed=known.was_clean or end is not None,
            is_compacted=known.is_compacted or is_swapping(files),
            walk=walk,
            lost_end_offset=documented[-1].end_offset if documented and end is None else 0,
        )
        yield Piece(segment.path(LOG_SUFFIX), segment.log_bytes, what)


def _check_partition(files: PartitionFiles, known: Known, results: Sequence[Result], observer: Collected) -> uuid.UUID | None:
    """What the segments show, and what none of them alone does; the topic's id."""
    if not files.segments:
        return check_partition(OsFileSystem(), files, known, observer).topic_id
    for result in results:
        observer.findings += (_finding(entry) for entry in result["findings"])
    return _check_whole(files, known, results, Reporter(observer))


def _check_whole(files: PartitionFiles, known: Known, results: Sequence[Result], reporter: Reporter) -> uuid.UUID | None:
    fs = OsFileSystem()
    check_names(files, reporter)
    documented = check_gaps(fs, files, reporter)
    epochs = check_leader_epochs(fs, files, reporter)
    next_offset = files.segments[0].base_offset
    start_offset = max(next_offset, known.log_start_offset or 0)
    gaps: list[Gap] = []
    for segment, result in zip(files.segments, results, strict=True):
        if segment.base_offset > next_offset:
            gaps.append(Gap(segment.path(LOG_SUFFIX), 0, next_offset, segment.base_offset))
        gaps += (Gap(**gap) for gap in result["gaps"])
        next_offset = result["next_offset"]
    if documented and documented[-1].end_offset > next_offset:
        next_offset = documented[-1].end_offset
    is_compacted = known.is_compacted or is_swapping(files) or any(result["is_compacted"] for result in results)
    end_offset = max(next_offset, start_offset)
    if not is_compacted:
        report_gaps(gaps, documented, reporter)
    check_epoch_ends(files, epochs, end_offset, reporter)
    check_offsets(files, known, end_offset, reporter)
    check_derived(fs, files, known.log_start_offset or 0, reporter)
    return check_topic_id(fs, files, known.topic_id, reporter)


def _finding(entry: dict[str, Any]) -> Finding:
    return Finding(**{**entry, "severity": Severity(entry["severity"])})
