"""`triolog spark load`."""

from __future__ import annotations

from pathlib import Path

import click

from ....cli.terminal.output import count_text, json_option, print_json, say
from ....cli.terminal.remote import ServerAddress, plain_server_option
from ..job_session import job_session, manifest_option, master_option, watched

FORMATS = ("parquet", "csv", "json")


@click.command("load")
@click.argument("source", metavar="PATH", type=click.Path(exists=True))
@click.option("--topic", required=True, metavar="NAME", help="The topic; it must exist.")
@click.option(
    "--format", "kind", required=True, type=click.Choice(FORMATS), help="csv has a line of names; json is JSON lines."
)
@click.option("--value", metavar="COLUMN", help="The records' values. [default: value, else the whole row as JSON]")
@click.option("--key", metavar="COLUMN", help="The records' keys. [default: key beside value, else none]")
@click.option("--timestamp", metavar="COLUMN", help="A time, or ms since 1970. [default: timestamp beside value, else now]")
@click.option("--keep-partitions", is_flag=True, help="Into the partitions that the column partition names.")
@click.option("--compression", default="none", show_default=True, type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]))
@plain_server_option
@master_option
@manifest_option
@json_option
def command(
    source: str,
    topic: str,
    kind: str,
    value: str | None,
    key: str | None,
    timestamp: str | None,
    keep_partitions: bool,
    compression: str,
    server: ServerAddress,
    master: str,
    manifest: Path | None,
    as_json: bool,
) -> None:
    """Write the rows of a file, or of the files below a folder, as records of a topic.

    With --manifest the same command goes on where it was, and no row is written twice; without, a second run writes all again.
    Exit code 1 when something failed.
    """
    with job_session("load", master) as spark:
        from ..load import Load, load

        job = Load(
            source=source,
            format=kind,
            topic=topic,
            servers=str(server),
            value=value,
            key=key,
            timestamp=timestamp,
            keeps_partitions=keep_partitions,
            compression=compression,
        )
        with watched("loading") as progress:
            records = load(spark, job, manifest=manifest, progress=progress)
    if as_json:
        print_json({"topic": topic, "records": records})
    else:
        say(f"{count_text(records, 'record')} in {topic}")
