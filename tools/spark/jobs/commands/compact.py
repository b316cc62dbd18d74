"""`triolog spark compact`."""

from __future__ import annotations

from pathlib import Path

import click

from ....cli.terminal.failures import FailedError
from ....cli.terminal.output import count_text, json_option, print_json, printable, say, size_text
from ....cli.terminal.stopped import directory_argument, stopped
from ..job_session import job_session, manifest_option, master_option, watched


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
    from .....server.offline.findings import Quiet, Reporter
    from .....server.offline.verify import read_directory_files

    with stopped(directory, topics, writes=True) as (fs, found):
        says = read_directory_files(fs, found, Reporter(Quiet()))
        wrong = [files.topic_partition.topic for files in found.partitions if not says.of(files.topic_partition).is_compacted]
        if wrong and not force:
            raise FailedError(
                f"the cleanup.policy of {printable(wrong[0])} is not compact: older records of equal keys and all records "
                "without a key would be lost; --force compacts it all the same"
            )
        with job_session("compact", master) as spark:
            from ..compact import compact

            with watched("compacting") as progress:
                done = compact(spark, found, include_active=include_active, manifest=manifest, progress=progress)
    if as_json:
        print_json(
            {
                "partitions": done.partitions,
                "bytes_before": done.bytes_before,
                "bytes_after": done.bytes_after,
                "keyless_records": done.keyless_records,
            }
        )
    else:
        keyless = f", {count_text(done.keyless_records, 'record')} without a key dropped" if done.keyless_records else ""
        sizes = f"{size_text(done.bytes_before)} -> {size_text(done.bytes_after)}"
        say(f"{count_text(done.partitions, 'partition')}: {sizes}{keyless}")
