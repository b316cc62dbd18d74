"""`triolog reindex`: the indexes of a stopped log made anew from its batches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from .terminal.failures import EXIT_FAILED
from .terminal.findings import Warnings, say_after
from .terminal.output import count_text, flush, json_line, json_option, printable, say, size_text, write
from .terminal.progress import open_progress
from .terminal.shapes import Sum, fields
from .terminal.stopped import directory_argument, relative, stopped, topics_option

if TYPE_CHECKING:
    from ...server.offline.repair import Reindexed
    from ...server.storage.directory.inventory import StoppedDirectory


@click.command
@directory_argument
@topics_option
@json_option
def command(directory: str, topics: tuple[str, ...], as_json: bool) -> None:
    """Rebuild the .index, .timeindex and .txnindex files in the log directory DIR, or in one partition's directory.

    The command checks every batch on the way. A segment with a damaged log keeps its indexes: `triolog repair` repairs both.
    Stop the server first. --json prints JSON lines. Exit code 1 when a segment was left as it was.
    """
    from ...server.offline.findings import Observer
    from ...server.offline.repair import reindex
    from ...server.offline.repair_directory import topic_config
    from ...server.offline.small_files_check import SnapshotCheck
    from ...server.offline.verify import read_directory_files

    begin = time.perf_counter()
    with stopped(directory, topics, writes=True) as (fs, found):
        quiet = Observer()
        says = read_directory_files(fs, found, Warnings(found))
        log_bytes = sum(files.log_bytes for files in found.partitions)
        with open_progress("reindexing", log_bytes, counts_records=False) as bar:
            report = _Report(found, as_json=as_json)
            advance = Sum(bar)
            for files in found.partitions:
                config = topic_config(says, files.topic_partition.topic)
                first_offset = files.segments[0].base_offset if files.segments else 0
                producers, _ = SnapshotCheck(fs, files.path, files.snapshots, quiet).starting_state(first_offset)
                for outcome in reindex(fs, files, config, producers, advance):
                    report.add(outcome)
        report.end(log_bytes, time.perf_counter() - begin)
    if report.failed:
        raise click.exceptions.Exit(EXIT_FAILED)


class _Report:
    """A line for each segment that failed, and one for all; JSON has all segments."""

    def __init__(self, directory: StoppedDirectory, *, as_json: bool) -> None:
        self._directory = directory
        self._as_json = as_json
        self._segments = self._entries = 0
        self.failed = 0

    def add(self, outcome: Reindexed) -> None:
        self._segments += 1
        self._entries += outcome.offset_entries + outcome.time_entries + outcome.aborted
        self.failed += outcome.failure is not None
        path = relative(outcome.segment.path(".log"), self._directory)
        if self._as_json:
            counts = fields(outcome, "offset_entries", "time_entries", "aborted", "failure")
            write(json_line({"type": "segment", "file": path, "ok": outcome.failure is None, **counts}))
        elif outcome.failure is not None:
            say_after("left", f"{path}: {printable(outcome.failure)}. Run `triolog repair` first", fg="red", bold=True)

    def end(self, log_bytes: int, elapsed_s: float) -> None:
        if self._as_json:
            write(json_line({"type": "verdict", "ok": not self.failed, "segments": self._segments, "failed": self.failed}))
        else:
            left = f", {self.failed} left as they were" if self.failed else ""
            rate = size_text(log_bytes / max(elapsed_s, 1e-9))
            what = f"{count_text(self._segments, 'segment')}{left}: {count_text(self._entries, 'entry', 'entries')}"
            say(f"{what} from {size_text(log_bytes)} of log in {elapsed_s:.2f} s ({rate}/s)")
        flush()
