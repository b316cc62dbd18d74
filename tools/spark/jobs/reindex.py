"""`triolog spark reindex`: the indexes of a stopped log made anew from its batches, a task for each stretch of segments that
can stand alone.

A transaction index needs to know the producers at the segment's start. A segment that begins with a snapshot knows them; others
go with the one before them. What is written, and when a segment is left as it was, is `server.offline.repair`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from ....server.config import LogConfig
from ....server.offline.findings import Observer
from ....server.offline.repair import reindex as reindex_segments
from ....server.offline.repair_directory import topic_config
from ....server.offline.small_files_check import SnapshotCheck
from ....server.offline.verify import read_directory_files
from ....server.storage.directory.inventory import PartitionFiles, StoppedDirectory
from ....server.storage.disk.filesystem import OsFileSystem
from ....server.storage.disk.paths import LOG_SUFFIX
from ...cli.terminal.failures import EXIT_FAILED
from ...cli.terminal.output import count_text, json_option, print_json, printable, say, size_text
from ...cli.terminal.shapes import fields
from ...cli.terminal.stopped import directory_argument, stopped, topics_option
from ...export.manifest import Manifest, Piece, Result
from .job_session import Progress, job_session, manifest_option, master_option, no_progress, run_pieces, segment_sizes, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@click.command("reindex")
@directory_argument
@topics_option
@master_option
@manifest_option
@json_option
def command(directory: str, topics: tuple[str, ...], master: str, manifest: Path | None, as_json: bool) -> None:
    """Make the indexes of the log directory DIR anew, segments in parallel.

    A segment whose log is damaged keeps its indexes. The server must be stopped. Exit code 1 when one was left as it was.
    """
    with stopped(directory, topics, writes=True) as (_, found), job_session("reindex", master) as spark:
        with watched("reindexing") as progress:
            done = reindex(spark, found, manifest=manifest, progress=progress)
    if as_json:
        failures = [{"file": path, "reason": why} for path, why in done.failures]
        print_json({**fields(done, "segments", "entries", "log_bytes"), "failures": failures})
    else:
        for path, why in done.failures:
            say(f"left  {printable(path)}: {printable(why)}; `triolog repair` comes first")
        entries = count_text(done.entries, "entry", "entries")
        say(f"{count_text(done.segments, 'segment')}: {entries} from {size_text(done.log_bytes)} of log")
    if done.failures:
        raise click.exceptions.Exit(EXIT_FAILED)


@attrs.frozen(kw_only=True)
class Stretch:
    """Neighbouring segments of a partition, of which the first knows its producers. Picklable."""

    files: PartitionFiles
    """With these segments alone."""
    config: LogConfig
    end_offset: int | None
    """The base offset behind the last of them."""


@attrs.frozen(kw_only=True)
class Reindexed:
    """The totals of the rebuilt indexes; `failures` are segments that were left as they were, and why."""

    segments: int
    entries: int
    log_bytes: int
    failures: tuple[tuple[str, str], ...]


def reindex(
    spark: SparkSession,
    directory: StoppedDirectory,
    *,
    manifest: Path | None = None,
    progress: Progress = no_progress,
) -> Reindexed:
    """Make all indexes anew in a directory whose lock the caller holds. JobError, ManifestError, OSError."""
    says = read_directory_files(OsFileSystem(), directory, Observer())
    sizes = {files.path: segment_sizes(files) for files in directory.partitions}
    kept = Manifest.open(manifest, "reindex", {"directory": directory.path}, files=sizes, is_repeatable=True)
    pieces = [
        Piece(stretch.files.segments[0].path(LOG_SUFFIX), stretch.files.log_bytes, stretch)
        for files in directory.partitions
        for stretch in _stretches(files, topic_config(says, files.topic_partition.topic))
    ]
    results = run_pieces(spark, pieces, reindex_stretch, kept, progress)
    kept.complete()
    return Reindexed(
        segments=sum(result["segments"] for result in results),
        entries=sum(result["entries"] for result in results),
        log_bytes=sum(files.log_bytes for files in directory.partitions),
        failures=tuple((path, why) for result in results for path, why in result["failures"]),
    )


def reindex_stretch(what: Stretch) -> Result:
    """In a task: make the indexes of some segments anew. OSError."""
    fs, files = OsFileSystem(), what.files
    snapshots = SnapshotCheck(fs, files.path, files.snapshots, Observer())
    producers, _ = snapshots.starting_state(files.segments[0].base_offset)
    done = list(reindex_segments(fs, files, what.config, producers, lambda done: None, end_offset=what.end_offset))
    return {
        "segments": len(done),
        "entries": sum(each.offset_entries + each.time_entries + each.aborted for each in done),
        "failures": [[each.segment.path(LOG_SUFFIX), each.failure] for each in done if each.failure is not None],
    }


def _stretches(files: PartitionFiles, config: LogConfig) -> Iterator[Stretch]:
    segments = files.segments
    starts = [index for index, each in enumerate(segments) if index == 0 or each.base_offset in files.snapshots]
    for start, stop in zip(starts, [*starts[1:], len(segments)], strict=True):
        chosen = attrs.evolve(files, segments=segments[start:stop])
        end_offset = segments[stop].base_offset if stop < len(segments) else None
        yield Stretch(files=chosen, config=config, end_offset=end_offset)
