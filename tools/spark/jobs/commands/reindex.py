"""`triolog spark reindex`."""

from __future__ import annotations

from pathlib import Path

import click

from ....cli.terminal.failures import EXIT_FAILED
from ....cli.terminal.output import count_text, json_option, print_json, printable, say, size_text
from ....cli.terminal.stopped import directory_argument, stopped, topics_option
from ..job_session import job_session, manifest_option, master_option, watched


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
        from ..reindex import reindex

        with watched("reindexing") as progress:
            done = reindex(spark, found, manifest=manifest, progress=progress)
    if as_json:
        failures = [{"file": path, "reason": why} for path, why in done.failures]
        print_json({"segments": done.segments, "entries": done.entries, "log_bytes": done.log_bytes, "failures": failures})
    else:
        for path, why in done.failures:
            say(f"left  {printable(path)}: {printable(why)}; `triolog repair` comes first")
        entries = count_text(done.entries, "entry", "entries")
        say(f"{count_text(done.segments, 'segment')}: {entries} from {size_text(done.log_bytes)} of log")
    if done.failures:
        raise click.exceptions.Exit(EXIT_FAILED)
