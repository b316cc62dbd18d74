"""Checking everything in a stopped log directory; nothing is changed. What is checked: `partition_check`, and here the files of
the directory itself: its offset checkpoints, `meta.properties`, `topics.json`, `topics-in-creation.json`, the clean marker, and
that every partition of a topic says the same topic id.

The directory must not change meanwhile: callers hold its lock.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

import attrs

from ....protocol.types import TopicPartition
from ..cleaner.checkpoint import CLEANER_OFFSET_FILE
from ..directory.client_metrics_file import CLIENT_METRICS_FILE, read_client_metrics
from ..directory.creations_file import CREATIONS_FILE, read_creations
from ..directory.groups_file import GROUPS_FILE, read_groups
from ..directory.inventory import StoppedDirectory
from ..directory.overrides_file import BROKERS
from ..directory.security_file import SECURITY_FILE, read_security
from ..directory.state_files import read_state
from ..directory.topics_file import TOPICS_FILE, Topic, decode_topics
from ..disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    MAX_CHECKPOINT_BYTES,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    decode_meta_properties,
)
from ..disk.filesystem import FileSystem, read_file
from ..errors import CheckpointError
from ..producers.producer_id_block import PRODUCER_ID_BLOCK_FILE, read_producer_id_block
from .findings import Observer, Reporter
from .partition_check import Known, PartitionSummary, check_partition
from .small_files_check import read_offsets


@attrs.frozen(kw_only=True)
class DirectorySays:
    """What the files of a log directory say of its partitions."""

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
    reporter = Reporter(observer)
    says = read_directory_files(fs, directory, reporter)
    topic_ids: dict[str, uuid.UUID] = {}
    for files in directory.partitions:
        topic = files.topic_partition.topic
        summary = check_partition(fs, files, says.of(files.topic_partition, topic_ids.get(topic)), observer, walk=walk)
        if summary.topic_id is not None:
            topic_ids.setdefault(topic, summary.topic_id)
        checked(summary)


def read_directory_files(fs: FileSystem, directory: StoppedDirectory, reporter: Reporter) -> DirectorySays:
    """Read, and check, the files of the log directory. Raises OSError."""
    path = directory.path
    for name in directory.marked:
        reporter.remark("name", f"{path}/{name}", "a partition that is being deleted, is stray or a future replica")
    for name in directory.foreign:
        reporter.damage("name", f"{path}/{name}", "is no directory of a partition: a server does not start on it; move it away")
    for name in directory.left_over:
        reporter.remark(
            "creation", f"{path}/{name}", "its topic was being made when the server ended; the next start removes it"
        )
    _check_meta_properties(fs, f"{path}/{META_PROPERTIES_FILE}", reporter)
    was_clean = fs.file_size(f"{path}/{CLEAN_SHUTDOWN_FILE}") is not None
    if not was_clean and directory.is_whole:
        text = "there is no clean marker: the server did not stop in order, and checks its logs when it starts"
        reporter.remark("clean stop", f"{path}/{CLEAN_SHUTDOWN_FILE}", text)
    _check_creations(fs, path, reporter)
    _check_producer_ids(fs, path, reporter)
    _check_security(fs, path, reporter)
    _check_groups(fs, path, reporter)
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


def _check_meta_properties(fs: FileSystem, path: str, reporter: Reporter) -> None:
    try:
        decode_meta_properties(path, read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES))
    except FileNotFoundError:
        return
    except (CheckpointError, ValueError) as exc:
        reporter.damage("identity", path, str(exc))


def _check_creations(fs: FileSystem, directory: str, reporter: Reporter) -> None:
    try:
        read_creations(fs, directory, 0)
    except CheckpointError as exc:
        reporter.damage("creation", f"{directory}/{CREATIONS_FILE}", str(exc))


def _check_producer_ids(fs: FileSystem, directory: str, reporter: Reporter) -> None:
    try:
        read_producer_id_block(fs, directory)
    except (CheckpointError, ValueError) as exc:
        reporter.damage("producer ids", f"{directory}/{PRODUCER_ID_BLOCK_FILE}", str(exc))


def _check_security(fs: FileSystem, directory: str, reporter: Reporter) -> None:
    try:
        read_security(fs, directory)
    except CheckpointError as exc:
        reporter.damage("users and ACLs", f"{directory}/{SECURITY_FILE}", str(exc))


def _check_groups(fs: FileSystem, directory: str, reporter: Reporter) -> None:
    try:
        read_groups(fs, directory)
    except CheckpointError as exc:
        reporter.damage("configurations of groups", f"{directory}/{GROUPS_FILE}", str(exc))
    try:
        read_client_metrics(fs, directory)
    except CheckpointError as exc:
        reporter.damage("subscriptions to metrics", f"{directory}/{CLIENT_METRICS_FILE}", str(exc))
    try:
        BROKERS.read(fs, directory)
    except CheckpointError as exc:
        reporter.damage("keys of the server", f"{directory}/{BROKERS.name}", str(exc))


def _read_topics(fs: FileSystem, path: str, reporter: Reporter) -> Mapping[str, Topic]:
    try:
        _, topics = read_state(fs, path, decode_topics)
    except FileNotFoundError:
        return {}
    except (CheckpointError, ValueError) as exc:
        reporter.damage("topics", path, str(exc))
        return {}
    return {topic.name: topic for topic in topics}


def _report_absent(directory: StoppedDirectory, says: DirectorySays, reporter: Reporter) -> None:
    """A checkpoint that names partitions which are not here: they may lie in another log directory, or were deleted."""
    there = {files.topic_partition for files in directory.partitions}
    absent = sorted(says.recovery_points.keys() - there)
    if absent and len(there) > 0:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        text = f"names {absent[0]}{more}, of which there is no directory"
        reporter.remark("checkpoint", f"{directory.path}/{RECOVERY_POINT_FILE}", text)
