"""`triolog spark export`."""

from __future__ import annotations

from typing import Any

import click

from ....cli.terminal.output import count_text, json_option, print_json, say, size_text
from ..job_session import job_session, master_option, watched


@click.command("export")
@click.argument("directories", nargs=-1, required=True, metavar="DIR...", type=click.Path(exists=True, file_okay=False))
@click.option("--target", required=True, type=click.Path(file_okay=False), help="The folder that the Parquet files go to.")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic; may be repeated.")
@click.option("--columns", metavar="LIST", help="Columns, by commas. [default: all]")
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

    A running server does not mind. The target keeps what is done: the same command goes on where it was, to the offsets of the
    first run. Exit code 1 when something failed.
    """
    with job_session("export", master) as spark:
        from ....export.layout import Export
        from ....export.log_pieces import LogSource
        from ..export import export

        source = LogSource(directories=directories, topics=topics, committed=isolation == "read_committed")
        chosen: dict[str, Any] = {} if columns is None else {"columns": tuple(name.strip() for name in columns.split(","))}
        try:
            job = Export(source=source, target=target, compression=compression, **chosen)
        except ValueError as exc:
            raise click.BadParameter(str(exc), param_hint="--columns") from exc
        with watched("exporting") as progress:
            done = export(spark, job, progress)
    if as_json:
        print_json({"target": target, "records": done.records, "files": done.files, "size_bytes": done.size_bytes})
    else:
        files = f"{count_text(done.files, 'file')}, {size_text(done.size_bytes)}"
        say(f"{count_text(done.records, 'record')} in {files}, in {target}")
