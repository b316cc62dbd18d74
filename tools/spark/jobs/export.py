"""`triolog spark export`: each piece of `triolog.tools.export.layout` is a task; the layout is the one of `triolog export`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import click

from ...cli.terminal.output import count_text, json_option, print_json, say, size_text
from ...cli.terminal.stopped import topics_option
from .job_session import Progress, directories_argument, job_session, master_option, no_progress, run_pieces, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...export.layout import Export, Exported


@click.command("export")
@directories_argument
@click.option("--target", required=True, type=click.Path(file_okay=False), help="Folder for the Parquet files.")
@topics_option
@click.option("--columns", metavar="LIST", help="Columns, separated by commas. [default: all]")
@click.option("--compression", default="zstd", show_default=True, type=click.Choice(["zstd", "snappy", "gzip", "lz4", "none"]))
@click.option(
    "--isolation", default="read_committed", show_default=True, type=click.Choice(["read_committed", "read_uncommitted"])
)
@master_option
@json_option
def command(
    directories: tuple[str, ...],
    target: str,
    topics: tuple[str, ...],
    columns: str | None,
    compression: str,
    isolation: str,
    master: str,
    as_json: bool,
) -> None:
    """Write the records of the log directories DIR as Parquet, by topic and day, one file for each piece and day.

    A server may be running. The target records the progress: the same command continues an interrupted run, up to the end
    offsets of the first run. Exit code 1 when something failed.
    """
    with job_session("export", master) as spark:
        from ...export.layout import Export
        from ...export.log_pieces import LogSource

        source = LogSource(directories=directories, topics=topics, committed=isolation == "read_committed")
        chosen: dict[str, Any] = {} if columns is None else {"columns": tuple(name.strip() for name in columns.split(","))}
        try:
            job = Export(source=source, target=target, compression=compression, **chosen)
        except ValueError as exc:
            raise click.BadParameter(str(exc), param_hint="--columns") from exc
        with watched("exporting") as progress:
            done = export(spark, job, progress)
    if as_json:
        print_json({"target": target, **attrs.asdict(done)})
    else:
        files = f"{count_text(done.files, 'file')}, {size_text(done.size_bytes)}"
        say(f"{count_text(done.records, 'record')} in {files}, in {target}")


def export(spark: SparkSession, job: Export, progress: Progress = no_progress) -> Exported:
    """Run the export, or what an earlier run has left of it. JobError, ManifestError, StorageError, OSError."""
    from ...export.layout import begin, export_piece, finish

    manifest, pieces = begin(job)
    results = run_pieces(spark, pieces, partial(export_piece, job), manifest, progress)
    return finish(job, manifest, results)
