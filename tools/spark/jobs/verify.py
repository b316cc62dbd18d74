"""`triolog spark verify`: every check of `triolog verify` on a stopped log directory, a task for each partition.

A task runs `check_partition`, as the command without Spark does; the driver checks the files of the directory.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from ....server.offline.findings import Collector, Finding, Observer, Severity
from ....server.offline.small_files_check import check_topic_id
from ....server.offline.verify import Known, check_partition, read_directory_files
from ....server.storage.directory.inventory import PartitionFiles, StoppedDirectory
from ....server.storage.disk.filesystem import OsFileSystem
from ...cli.terminal.failures import EXIT_FAILED, UnreadableError
from ...cli.terminal.findings import finding_row, finding_text, say_after
from ...cli.terminal.output import count_text, flush, json_line, json_option, say, size_text, write
from ...cli.terminal.shapes import fields
from ...cli.terminal.stopped import directory_argument, stopped, topics_option
from ...export.manifest import Manifest, Piece, Result
from .job_session import Progress, job_session, manifest_option, master_option, no_progress, run_pieces, segment_sizes, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@click.command("verify")
@directory_argument
@topics_option
@click.option("--walk/--no-walk", default=True, show_default=True, help="Look into every record, not only at its batch's CRC.")
@master_option
@manifest_option
@json_option
def command(directory: str, topics: tuple[str, ...], walk: bool, master: str, manifest: Path | None, as_json: bool) -> None:
    """Check every file of the log directory DIR, partitions in parallel: CRCs, records, index entries.

    As `triolog verify`. The server must be stopped; nothing is changed. Exit code 0: no damage; 1: damage; 2: wrong command
    line; 3: DIR cannot be read or is in use, or the job failed.
    """
    with stopped(directory, topics, writes=False) as (_, found), job_session("verify", master, UnreadableError) as spark:
        with watched("verifying") as progress:
            done = verify(spark, found, walk=walk, manifest=manifest, progress=progress)
        for finding in done.findings:
            if as_json:
                write(json_line({"type": "finding", **finding_row(finding, found)}))
            else:
                say_after(finding.severity.value, finding_text(finding, found))
    if as_json:
        counts = fields(done, "damages", "segments", "records", "log_bytes")
        write(json_line({"type": "verdict", "ok": not done.damages, **counts}))
        flush()
    else:
        looked = (
            f"{count_text(done.segments, 'segment')}, {count_text(done.records, 'record')}, {size_text(done.log_bytes)} of log"
        )
        say(f"{looked}: {count_text(done.damages, 'damage') if done.damages else 'no damage'}")
    if done.damages:
        raise click.exceptions.Exit(EXIT_FAILED)


@attrs.frozen(kw_only=True)
class PartitionToVerify:
    """A partition, and what its directory says of it. Picklable."""

    files: PartitionFiles
    known: Known
    walk: bool


@attrs.frozen(kw_only=True)
class Verified:
    """The findings, and how much was checked."""

    findings: tuple[Finding, ...]
    segments: int
    records: int
    log_bytes: int

    @property
    def damages(self) -> int:
        """Findings that are damage and no remark."""
        return sum(finding.severity is Severity.DAMAGE for finding in self.findings)


def verify(
    spark: SparkSession,
    directory: StoppedDirectory,
    *,
    walk: bool = True,
    manifest: Path | None = None,
    progress: Progress = no_progress,
) -> Verified:
    """Check a directory that nobody changes meanwhile: callers hold its lock. JobError, ManifestError, OSError."""
    fs, observer = OsFileSystem(), Collector()
    says = read_directory_files(fs, directory, observer)
    sizes = {files.path: segment_sizes(files) for files in directory.partitions}
    settings = {"directory": directory.path, "walk": walk}
    kept = Manifest.open(manifest, "verify", settings, files=sizes, is_repeatable=True)
    pieces: list[Piece[PartitionToVerify]] = []
    topic_ids: dict[str, uuid.UUID] = {}
    for files in directory.partitions:
        topic = files.topic_partition.topic
        known = says.of(files.topic_partition, topic_ids.get(topic))
        if (topic_id := check_topic_id(fs, files, known.topic_id, Observer())) is not None:
            topic_ids.setdefault(topic, topic_id)
        what = PartitionToVerify(files=files, known=known, walk=walk)
        pieces.append(Piece(str(files.topic_partition), files.log_bytes, what))
    results = run_pieces(spark, pieces, verify_partition, kept, progress)
    kept.complete()
    return Verified(
        findings=(*observer.findings, *(_finding(entry) for result in results for entry in result["findings"])),
        segments=sum(len(files.segments) for files in directory.partitions),
        records=sum(result["records"] for result in results),
        log_bytes=sum(files.log_bytes for files in directory.partitions),
    )


def verify_partition(what: PartitionToVerify) -> Result:
    """In a task: check one partition. OSError."""
    observer = Collector()
    summary = check_partition(OsFileSystem(), what.files, what.known, observer, walk=what.walk)
    found = [{**attrs.asdict(finding), "severity": finding.severity.value} for finding in observer.findings]
    return {"records": summary.records, "findings": found}


def _finding(entry: dict[str, Any]) -> Finding:
    return Finding(**{**entry, "severity": Severity(entry["severity"])})
