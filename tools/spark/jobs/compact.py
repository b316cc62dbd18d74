"""`triolog spark compact`: the newest record of each key of stopped logs, offsets kept, a task for each partition.

How a partition is compacted is `server.offline.compact_directory`. A task works with checkpoint files of its own,
and the driver puts what they say into those of the directory: tasks never write the same file. A partition that a server
has written to since an earlier run compacted it is compacted again. While the job runs the directory has no clean marker;
after a crash a server that starts completes what was being swapped and looks at its logs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import click

from ....protocol.types import TopicPartition
from ....server.config import LogConfig
from ....server.offline.compact_directory import CompactionOptions, compact_partition
from ....server.offline.findings import Observer
from ....server.offline.repair_directory import topic_config
from ....server.offline.verify import Known, read_directory_files
from ....server.storage.directory.inventory import PartitionFiles, StoppedDirectory, read_partition
from ....server.storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
    encode_offsets,
    read_cleaner_offsets,
    read_small,
    write_cleaner_offsets,
)
from ....server.storage.disk.filesystem import FileSystem, OsFileSystem, replace_file
from ....server.system.clock import system_now_ms
from ...cli.compact import check_policies
from ...cli.terminal.output import count_text, json_option, print_json, say, size_text
from ...cli.terminal.shapes import fields
from ...cli.terminal.stopped import directory_argument, stopped
from ...export.manifest import Manifest, Piece, Result
from .job_session import Progress, job_session, manifest_option, master_option, no_progress, run_pieces, segment_sizes, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COUNTS: Final = ("bytes_before", "bytes_after", "keyless_records")
MAP_BYTES: Final = 128 << 20
"""Of keys in a round, for each task."""


@click.command("compact")
@directory_argument
@click.option("--topic", "topics", multiple=True, required=True, metavar="NAME", help="The topic; may be repeated.")
@click.option("--include-active", is_flag=True, help="Close the active segments first, so that they are compacted too.")
@click.option("--force", is_flag=True, help="Even though a topic's cleanup.policy is not compact.")
@master_option
@manifest_option
@json_option
def command(
    directory: str,
    topics: tuple[str, ...],
    include_active: bool,
    force: bool,
    master: str,
    manifest: Path | None,
    as_json: bool,
) -> None:
    """Keep the newest record of each key of topics in the log directory DIR, offsets unchanged, partitions in parallel.

    As `triolog compact`: records without a key are dropped, there is no way back, and the server must be stopped.
    """
    with stopped(directory, topics, writes=True) as (fs, found):
        says = read_directory_files(fs, found, Observer())
        if not force:
            check_policies(found, says)
        with job_session("compact", master) as spark, watched("compacting") as progress:
            done = compact(spark, found, include_active=include_active, manifest=manifest, progress=progress)
    if as_json:
        print_json(attrs.asdict(done))
    else:
        keyless = f", {count_text(done.keyless_records, 'record')} without a key dropped" if done.keyless_records else ""
        sizes = f"{size_text(done.bytes_before)} -> {size_text(done.bytes_after)}"
        say(f"{count_text(done.partitions, 'partition')}: {sizes}{keyless}")


@attrs.frozen(kw_only=True)
class PartitionToCompact:
    """A partition and its facts from the directory. Picklable."""

    files: PartitionFiles
    known: Known
    cleaned_offset: int | None
    config: LogConfig
    include_active: bool


@attrs.frozen(kw_only=True)
class Compacted:
    """The totals of the compacted partitions."""

    partitions: int
    bytes_before: int
    bytes_after: int
    keyless_records: int


def compact(
    spark: SparkSession,
    directory: StoppedDirectory,
    *,
    include_active: bool = False,
    manifest: Path | None = None,
    progress: Progress = no_progress,
) -> Compacted:
    """Compact every partition of `directory`, whose lock the caller holds. JobError, ManifestError, OSError.

    Records without a key are dropped, as Kafka does; callers ask first whether the topics are to be compacted.
    """
    fs = OsFileSystem()
    says = read_directory_files(fs, directory, Observer())
    names = sorted(str(files.topic_partition) for files in directory.partitions)
    settings = {"directory": directory.path, "partitions": names, "include_active": include_active}
    kept = Manifest.open(manifest, "compact", settings, is_repeatable=True)
    kept.forget(
        name
        for name, sizes in {str(files.topic_partition): segment_sizes(files) for files in directory.partitions}.items()
        if name in kept.done and kept.done[name]["segments"] != sizes
    )
    pieces = [
        Piece(
            str(files.topic_partition),
            files.log_bytes,
            PartitionToCompact(
                files=files,
                known=says.of(files.topic_partition),
                cleaned_offset=says.cleaned_offsets.get(files.topic_partition),
                config=attrs.evolve(
                    topic_config(says, files.topic_partition.topic), min_compaction_lag_ms=0, cleanup_policy=("compact",)
                ),
                include_active=include_active,
            ),
        )
        for files in directory.partitions
    ]
    marker = f"{directory.path}/{CLEAN_SHUTDOWN_FILE}"
    content = read_small(fs, marker) if fs.file_size(marker) is not None else None
    if content is not None:
        fs.unlink(marker)
        fs.sync_directory(directory.path)
    results = run_pieces(spark, pieces, compact_piece, kept, progress)
    for name in (CLEANER_OFFSET_FILE, RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE):
        found = {
            files.topic_partition: result["offsets"][name]
            for files, result in zip(directory.partitions, results, strict=True)
            if name in result["offsets"]
        }
        _keep_offsets(fs, f"{directory.path}/{name}", found)
    if content is not None:
        replace_file(fs, marker, content)
    kept.complete()
    return Compacted(partitions=len(results), **{name: sum(result[name] for result in results) for name in _COUNTS})


def compact_piece(what: PartitionToCompact) -> Result:
    """In a task: compact one partition. StorageError, CorruptRecordError for a damaged log; OSError."""
    fs, partition = OsFileSystem(), what.files.topic_partition
    how = CompactionOptions(config=what.config, now_ms=system_now_ms, include_active=what.include_active, map_bytes=MAP_BYTES)
    with tempfile.TemporaryDirectory(prefix="triolog-compact-") as folder:
        if what.cleaned_offset is not None:
            write_cleaner_offsets(fs, folder, {partition: what.cleaned_offset}, durable=False)
        done = compact_partition(fs, folder, what.files, what.known, how, lambda done: None)
        offsets = {CLEANER_OFFSET_FILE: read_cleaner_offsets(fs, folder).get(partition)}
        for name in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE):
            offsets[name] = _offsets(fs, f"{folder}/{name}").get(partition)
    return {
        **fields(done, *_COUNTS),
        "segments": segment_sizes(read_partition(fs, what.files.path)),
        "offsets": {name: offset for name, offset in offsets.items() if offset is not None},
    }


def _offsets(fs: FileSystem, path: str) -> Mapping[TopicPartition, int]:
    if fs.file_size(path) is None:
        return {}
    return decode_offsets(path, read_small(fs, path))


def _keep_offsets(fs: FileSystem, path: str, found: Mapping[TopicPartition, int]) -> None:
    before = _offsets(fs, path)
    if {**before, **found} != before:
        replace_file(fs, path, encode_offsets({**before, **found}))
