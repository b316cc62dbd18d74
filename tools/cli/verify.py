"""`triolog verify`: is everything in a stopped log directory as it has to be? Nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .terminal.failures import EXIT_FAILED
from .terminal.findings import Findings, say_after
from .terminal.output import count_text, flush, json_line, json_option, say, size_text, write
from .terminal.progress import open_progress
from .terminal.shapes import fields
from .terminal.stopped import directory_argument, stopped, topics_option

if TYPE_CHECKING:
    from ...server.offline.verify import PartitionSummary
    from ...server.storage.directory.inventory import StoppedDirectory
    from .terminal.progress import NoProgress, ProgressBar


@click.command
@directory_argument
@topics_option
@click.option("--walk/--no-walk", default=True, show_default=True, help="Check every record, not only its batch's CRC.")
@json_option
def command(directory: str, topics: tuple[str, ...], walk: bool, as_json: bool) -> None:
    """Check every file of the log directory DIR, or of one partition's directory.

    Checks of logs: framing, CRC, offsets, epochs and the structure of all records. Indexes, transaction indexes and snapshots
    must agree with their log. Checkpoints and metadata must be readable and plausible. The output lists the damage with file,
    position, size and offsets. Stop the server (or Kafka) first. Nothing is changed. --json prints JSON lines.

    Exit code 0: no damage (remarks do not count). 1: damage. 2: wrong command line. 3: the directory cannot be read or is in
    use.
    """
    from ...server.offline.verify import verify

    with stopped(directory, topics, writes=False) as (fs, found):
        log_bytes = sum(files.log_bytes for files in found.partitions)
        with open_progress("verifying", log_bytes) as bar:
            findings = Findings(found, bar, as_json=as_json)
            report = _Report(found, findings, bar, as_json=as_json)
            verify(fs, found, findings, walk=walk, checked=report.checked)
        report.end(log_bytes)
    if findings.damages:
        raise click.exceptions.Exit(EXIT_FAILED)


class _Report:
    """A line for each partition and one for all."""

    def __init__(
        self, directory: StoppedDirectory, findings: Findings, bar: ProgressBar | NoProgress, *, as_json: bool
    ) -> None:
        self._directory = directory
        self._bar = bar
        self._findings = findings
        self._as_json = as_json
        self._records = 0

    def checked(self, summary: PartitionSummary) -> None:
        files, damages = summary.files, self._findings.damages_here
        self._records += summary.records
        self._bar.step_aside()
        if self._as_json:
            row = {
                **files.topic_partition._asdict(),
                "ok": not damages,
                "damages": damages,
                **fields(summary, "log_start_offset", "log_end_offset"),
                "segments": len(files.segments),
                **fields(summary, "batches", "records"),
                "log_bytes": files.log_bytes,
            }
            write(json_line({"type": "partition", **row}))
            return
        said = (
            f"{files.topic_partition}: {count_text(summary.records, 'record')} in "
            f"{count_text(summary.batches, 'batch', 'batches')} and {count_text(len(files.segments), 'segment')}, "
            f"{size_text(files.log_bytes)}, "
            f"offsets {summary.log_start_offset} up to {summary.log_end_offset} (exclusive)"
        )
        if damages:
            say_after("FAILED", f"{said}, {damages} damaged", fg="red", bold=True)
        else:
            say_after("ok    ", said, fg="green")

    def end(self, log_bytes: int) -> None:
        findings, partitions = self._findings, len(self._directory.partitions)
        if self._as_json:
            counts = {"damages": findings.damages, "remarks": findings.remarks, "partitions": partitions}
            row = {"type": "verdict", "ok": not findings.damages, **counts, "records": self._records, "log_bytes": log_bytes}
            write(json_line(row))
        else:
            looked = (
                f"{count_text(partitions, 'partition')}, {count_text(self._records, 'record')}, {size_text(log_bytes)} of log"
            )
            remarks = f", {count_text(findings.remarks, 'remark')}" if findings.remarks else ""
            if findings.damages:
                places = count_text(findings.damages, "damage")
                say(f"{looked}: {places}{remarks}; `triolog repair --dry-run` shows the repairs")
            else:
                say(f"{looked}: no damage{remarks}")
        flush()
