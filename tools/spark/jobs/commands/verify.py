"""`triolog spark verify`."""

from __future__ import annotations

from pathlib import Path

import click

from ....cli.terminal.failures import EXIT_FAILED, UnreadableError
from ....cli.terminal.findings import finding_row, finding_text, say_after
from ....cli.terminal.output import count_text, flush, json_line, json_option, say, size_text, write
from ....cli.terminal.stopped import directory_argument, stopped, topics_option
from ..job_session import job_session, manifest_option, master_option, watched


@click.command("verify")
@directory_argument
@topics_option
@click.option("--walk/--no-walk", default=True, show_default=True, help="Look into every record, not only at its batch's CRC.")
@master_option
@manifest_option
@json_option
def command(directory: str, topics: tuple[str, ...], walk: bool, master: str, manifest: Path | None, as_json: bool) -> None:
    """Check every segment of the log directory DIR in parallel: CRCs, records, index entries.

    As `triolog verify`, but that producers are compared only where a segment begins with a snapshot. The server must be
    stopped; nothing is changed. Exit code 0: no damage; 1: damage; 2: wrong command line; 3: DIR cannot be read or is
    in use, or the job failed.
    """
    with stopped(directory, topics, writes=False) as (_, found), job_session("verify", master, UnreadableError) as spark:
        from ..verify import verify

        with watched("verifying") as progress:
            done = verify(spark, found, walk=walk, manifest=manifest, progress=progress)
        for finding in done.findings:
            if as_json:
                write(json_line({"type": "finding", **finding_row(finding, found)}))
            else:
                say_after(finding.severity.value, finding_text(finding, found))
    counts = {"damages": done.damages, "segments": done.segments, "records": done.records, "log_bytes": done.log_bytes}
    if as_json:
        write(json_line({"type": "verdict", "ok": not done.damages, **counts}))
        flush()
    else:
        looked = (
            f"{count_text(done.segments, 'segment')}, {count_text(done.records, 'record')}, {size_text(done.log_bytes)} of log"
        )
        say(f"{looked}: {count_text(done.damages, 'damage') if done.damages else 'no damage'}")
    if done.damages:
        raise click.exceptions.Exit(EXIT_FAILED)
