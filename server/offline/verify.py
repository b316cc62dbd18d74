"""Check everything in a stopped log directory; nothing is changed.

Of the directory: its offset checkpoints, `meta.properties`, `topics.json`, `topics-in-creation.json`, the clean marker, and
that every partition of a topic has the same topic id.

Of each partition, in one pass over its log: what `segment_check`, `index_check` and `small_files_check` see, names that no part
of a log has, indexes without a log, leftovers of interrupted work, gaps between batches or segments that nothing documents, and
checkpoints that point after the end of the log.

The directory must not change meanwhile: callers hold its lock.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from ...protocol.limits import INT64_MAX
from ...protocol.types import TopicPartition
from ..storage.directory.inventory import PartitionFiles, StoppedDirectory
from ..storage.directory.state_files import BROKERS, CLIENT_METRICS, GROUPS, SECURITY_FILE, read_security, read_state
from ..storage.directory.topics_file import CREATIONS_FILE, TOPICS_FILE, Topic, decode_topics, read_creations
from ..storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    PRODUCER_ID_BLOCK_FILE,
    RECOVERY_POINT_FILE,
    decode_meta_properties,
    maybe_read,
    read_producer_id_block,
)
from ..storage.disk.filesystem import FileSystem
from ..storage.disk.paths import BATCHES_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, segment_file
from ..storage.errors import CheckpointError
from ..storage.log.gaps import OffsetGap, gap_at
from .findings import Observer
from .segment_check import Gap, LogState, SegmentCheck
from .small_files_check import (
    SnapshotCheck,
    check_derived,
    check_epoch_ends,
    check_gaps,
    check_leader_epochs,
    check_topic_id,
    read_offsets,
)

_READ_WHOLE: Final[Sequence[tuple[str, str, Callable[[FileSystem, str], object]]]] = (
    (
        "identity",
        META_PROPERTIES_FILE,
        lambda fs, path: maybe_read(fs, f"{path}/{META_PROPERTIES_FILE}", decode_meta_properties),
    ),
    ("creation", CREATIONS_FILE, lambda fs, path: read_creations(fs, path, 0)),
    ("producer ids", PRODUCER_ID_BLOCK_FILE, read_producer_id_block),
    ("users and ACLs", SECURITY_FILE, read_security),
    ("configurations of groups", GROUPS.name, GROUPS.read),
    ("subscriptions to metrics", CLIENT_METRICS.name, CLIENT_METRICS.read),
    ("keys of the server", BROKERS.name, BROKERS.read),
)
"""(check, file of the log directory, what reads it whole)."""


@attrs.frozen(kw_only=True)
class DirectorySays:
    """The facts about partitions in the files of a log directory."""

    was_clean: bool
    topics: Mapping[str, Topic]
    recovery_points: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]
    cleaned_offsets: Mapping[TopicPartition, int]

    def of(self, topic_partition: TopicPartition, topic_id: uuid.UUID | None = None) -> Known:
        """`topic_id`: what another partition of the topic says, for topics without an entry in `topics.json`."""
        topic = self.topics.get(topic_partition.topic)
        policy = topic.configs.get("cleanup.policy", "") if topic is not None else ""
        return Known(
            was_clean=self.was_clean,
            log_start_offset=self.log_start_offsets.get(topic_partition),
            recovery_point=self.recovery_points.get(topic_partition),
            high_watermark=self.high_watermarks.get(topic_partition),
            topic_id=topic.topic_id if topic is not None else topic_id,
            is_compacted="compact" in policy or topic_partition in self.cleaned_offsets,
        )


def verify(
    fs: FileSystem,
    directory: StoppedDirectory,
    observer: Observer,
    *,
    walk: bool = True,
    checked: Callable[[PartitionSummary], None] = lambda summary: None,
) -> None:
    """Report everything that is wrong in a log directory; `checked` is called behind each partition. Raises OSError."""
    reporter = observer
    says = read_directory_files(fs, directory, reporter)
    topic_ids: dict[str, uuid.UUID] = {}
    for files in directory.partitions:
        topic = files.topic_partition.topic
        summary = check_partition(fs, files, says.of(files.topic_partition, topic_ids.get(topic)), observer, walk=walk)
        if summary.topic_id is not None:
            topic_ids.setdefault(topic, summary.topic_id)
        checked(summary)


def read_directory_files(fs: FileSystem, directory: StoppedDirectory, reporter: Observer) -> DirectorySays:
    """Read, and check, the files of the log directory. Raises OSError."""
    path = directory.path
    for name in directory.marked:
        reporter.remark("name", f"{path}/{name}", "a partition that is being deleted, is stray or a future replica")
    for name in directory.foreign:
        reporter.damage(
            "name", f"{path}/{name}", "is not a directory of a partition: a server does not start on it. Move it away"
        )
    for name in directory.left_over:
        reporter.remark(
            "creation", f"{path}/{name}", "the server stopped while it created the topic. The next start removes it"
        )
    was_clean = fs.file_size(f"{path}/{CLEAN_SHUTDOWN_FILE}") is not None
    if not was_clean and directory.is_whole:
        text = "no clean shutdown marker: the server did not stop cleanly, and checks its logs when it starts"
        reporter.remark("clean stop", f"{path}/{CLEAN_SHUTDOWN_FILE}", text)
    for check, name, read in _READ_WHOLE:
        try:
            read(fs, path)
        except (CheckpointError, ValueError) as exc:
            reporter.damage(check, f"{path}/{name}", str(exc))
    says = DirectorySays(
        was_clean=was_clean,
        topics=_read_topics(fs, f"{path}/{TOPICS_FILE}", reporter),
        recovery_points=read_offsets(fs, f"{path}/{RECOVERY_POINT_FILE}", reporter),
        high_watermarks=read_offsets(fs, f"{path}/{HIGH_WATERMARK_FILE}", reporter),
        log_start_offsets=read_offsets(fs, f"{path}/{LOG_START_FILE}", reporter),
        cleaned_offsets=read_offsets(fs, f"{path}/{CLEANER_OFFSET_FILE}", reporter),
    )
    if directory.is_whole:
        _report_absent(directory, says, reporter)
    return says


def _read_topics(fs: FileSystem, path: str, reporter: Observer) -> Mapping[str, Topic]:
    try:
        _, topics = read_state(fs, path, decode_topics) or (0, [])
    except (CheckpointError, ValueError) as exc:
        reporter.damage("topics", path, str(exc))
        return {}
    return {topic.name: topic for topic in topics}


def _report_absent(directory: StoppedDirectory, says: DirectorySays, reporter: Observer) -> None:
    """A checkpoint that names partitions which are not here: they may lie in another log directory, or were deleted."""
    there = {files.topic_partition for files in directory.partitions}
    absent = sorted(says.recovery_points.keys() - there)
    if absent and len(there) > 0:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        text = f"names {absent[0]}{more}, which has no directory"
        reporter.remark("checkpoint", f"{directory.path}/{RECOVERY_POINT_FILE}", text)


NAME: Final = "name"
GAP: Final = "gap"


@attrs.frozen(kw_only=True)
class Known:
    """The facts about a partition in the log directory; None where it has none."""

    was_clean: bool = False
    log_start_offset: int | None = None
    recovery_point: int | None = None
    high_watermark: int | None = None
    topic_id: uuid.UUID | None = None
    is_compacted: bool = False


@attrs.frozen(kw_only=True)
class PartitionSummary:
    """The content of a partition."""

    files: PartitionFiles
    log_start_offset: int
    log_end_offset: int
    batches: int
    records: int
    topic_id: uuid.UUID | None


def check_partition(
    fs: FileSystem, files: PartitionFiles, known: Known, observer: Observer, *, walk: bool = True
) -> PartitionSummary:
    """Report everything that is wrong with a partition. `walk`: look into every record. Raises OSError.

    Memory: pieces of files, one batch, and the producers of the log.
    """
    observer.begin(files.topic_partition, files.log_bytes)
    reporter = observer
    check_names(files, reporter)
    gaps = check_gaps(fs, files, reporter)
    epochs = check_leader_epochs(fs, files, reporter)
    first_offset = files.segments[0].base_offset if files.segments else known.log_start_offset or 0
    snapshots = SnapshotCheck(fs, files.path, files.snapshots, reporter)
    producers, is_known = snapshots.starting_state(first_offset)
    state = LogState(
        producers=producers,
        snapshots=snapshots,
        epochs=epochs,
        log_start_offset=max(first_offset, known.log_start_offset or 0),
        next_offset=first_offset,
        walk=walk,
        has_all_producers=is_known,
        is_compacted=known.is_compacted or is_swapping(files),
    )
    torn_from = INT64_MAX if known.was_clean else known.recovery_point or 0
    for segment, end_offset in files.with_ends():
        was_closed = end_offset is not None or known.was_clean
        check = SegmentCheck(fs, segment, state, end_offset=end_offset, was_closed=was_closed, torn_from=torn_from)
        check.run(reporter)
    if gaps and gaps[-1].end_offset > state.next_offset:
        state.has_all_producers = False  # what was lost at the end of the log counts: its offsets are not given out again
        state.next_offset = gaps[-1].end_offset
    log_end_offset = max(state.next_offset, state.log_start_offset)
    is_complete = state.has_all_producers and not state.is_compacted
    snapshots.compare(log_end_offset, state.producers, state.needed, state.log_start_offset, is_complete=is_complete)
    snapshots.finish(log_end_offset)
    check_epoch_ends(files, epochs, log_end_offset, reporter)
    if not state.is_compacted:
        report_gaps(state.gaps, gaps, state.log_start_offset, reporter)
    check_offsets(files, known, log_end_offset, reporter)
    check_derived(fs, files, known.log_start_offset or 0, reporter)
    return PartitionSummary(
        files=files,
        log_start_offset=state.log_start_offset,
        log_end_offset=log_end_offset,
        batches=state.batches,
        records=state.records,
        topic_id=check_topic_id(fs, files, known.topic_id, reporter),
    )


def is_swapping(files: PartitionFiles) -> bool:
    """Return whether a compaction was cut off while it replaced segments: some of them have no final name then."""
    return any(name.endswith(SWAP_SUFFIX) for name in files.leftovers)


def check_names(files: PartitionFiles, reporter: Observer) -> None:
    """Report names that no part of a log has."""
    if not files.segments:
        reporter.remark(NAME, files.path, "holds no segment: a server makes an empty one")
    for name in files.foreign:
        text = "is not a file of a log"
        if name.endswith(LOG_SUFFIX):
            reporter.damage(NAME, f"{files.path}/{name}", f"{text}: a segment is named after a base offset of 20 digits")
        else:
            reporter.remark(NAME, f"{files.path}/{name}", text)
    for name in files.orphans:
        reporter.damage(NAME, f"{files.path}/{name}", f"has no {name[:20]}{LOG_SUFFIX}")
    for offset in sorted(set(files.batches).difference(files.snapshots)):
        text = "has no snapshot. The next start removes it"
        reporter.remark("leftover", f"{files.path}/{segment_file(offset, BATCHES_SUFFIX)}", text)
    for name in files.leftovers:
        text = "is a leftover. The next start removes it"
        if name.endswith(SWAP_SUFFIX):
            text = "a compaction was interrupted while it replaced segments. The next start completes it"
        reporter.remark("leftover", f"{files.path}/{name}", text)


def report_gaps(gaps: Sequence[Gap], documented: tuple[OffsetGap, ...], log_start_offset: int, reporter: Observer) -> None:
    """Each gap of a log that was not compacted, which leaves gaps everywhere, must be a documented one. A server forgets those
    below the log start."""
    for gap in gaps:
        for first_offset, next_offset in undocumented(gap, documented, log_start_offset):
            where = "before this segment: a segment file is missing" if gap.position == 0 else "before this position"
            reporter.damage(
                GAP,
                gap.file,
                f"no batch holds the offsets {first_offset} to {next_offset - 1}, {where}",
                position=gap.position,
                first_offset=first_offset,
                next_offset=next_offset,
            )


def undocumented(gap: Gap, documented: tuple[OffsetGap, ...], log_start_offset: int) -> list[tuple[int, int]]:
    """Return the parts of a gap from the log start on that `quarantine-checkpoint` does not list, as ranges with exclusive
    ends."""
    found: list[tuple[int, int]] = []
    offset = max(gap.first_offset, log_start_offset)
    while offset < gap.next_offset:
        covering = gap_at(documented, offset)
        if covering is not None:
            offset = covering.end_offset
            continue
        starts = [each.start_offset for each in documented if each.start_offset > offset]
        stop = min([gap.next_offset, *starts])
        found.append((offset, stop))
        offset = stop
    return found


def check_offsets(files: PartitionFiles, known: Known, log_end_offset: int, reporter: Observer) -> None:
    """Report what the checkpoints of the log directory say that the log does not."""
    for name, offset, is_end in (
        ("log start offset", known.log_start_offset, False),
        ("recovery point", known.recovery_point, True),
        ("high watermark", known.high_watermark, True),
    ):
        if offset is None:
            continue
        text = f"the checkpoint of the log directory has the {name} {offset}, the log ends at {log_end_offset}"
        if offset > log_end_offset:
            reporter.damage("checkpoint", files.path, text)
        elif is_end and known.was_clean and offset < log_end_offset:
            reporter.remark("checkpoint", files.path, text)
