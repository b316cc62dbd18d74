"""`triolog spark profile`."""

from __future__ import annotations

from pathlib import Path

import click

from ...cli.terminal.output import count_text, json_option, print_json, printable, say
from ...cli.terminal.shapes import fields
from ...cli.terminal.stopped import topics_option
from ...cli.terminal.times import duration_text
from .job_session import directories_argument, job_session, manifest_option, master_option, watched


@click.command("profile")
@directories_argument
@topics_option
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a report with plots to this file.")
@master_option
@manifest_option
@json_option
def command(
    directories: tuple[str, ...], topics: tuple[str, ...], html: Path | None, master: str, manifest: Path | None, as_json: bool
) -> None:
    """Show rates, sizes, skew of keys and lateness of records for each topic of the log directories DIR.

    A server may be running. Exit code 1 when something failed.
    """
    with job_session("profile", master) as spark:
        from ...export.log_pieces import LogSource
        from ...export.manifest import replace_file
        from .profile import profile
        from .profile_report import render

        with watched("profiling") as progress:
            found = profile(spark, LogSource(directories=directories, topics=topics), manifest=manifest, progress=progress)
        if html is not None:
            replace_file(html, render(found, f"Topics in {', '.join(directories)}").encode())
    rows = [
        {
            **fields(each, "topic", "records", "stored_bytes", "distinct_keys"),
            "top_key_share": each.top_keys[0][1] / max(1, each.records) if each.top_keys else 0.0,
            **fields(each, "late_records", "max_late_ms"),
        }
        for each in found
    ]
    if as_json:
        print_json(rows)
        return
    if not found:
        say("no records")
    for each, row in zip(found, rows, strict=True):
        keys = f"{count_text(each.distinct_keys, 'key')}, the most frequent has {row['top_key_share']:.1%}"
        late = f"{count_text(each.late_records, 'record')} late, by up to {duration_text(each.max_late_ms / 1000)}"
        say(f"{printable(each.topic)}: {count_text(each.records, 'record')}, {keys}, {late}")
    if html is not None:
        say(f"report in {html}")
