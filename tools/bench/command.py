"""`triolog bench`: measure, compare with other servers and bare loops in the same run, and print the table."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

import click

SAVED_IN: Final = "docs/benchmarks"
EXIT_ROW_FAILED: Final = 1


@click.command
@click.option("--only", "only", multiple=True, metavar="ROW", help="Name or number of a row; may be repeated.")
@click.option("--quick", is_flag=True, help="A tenth of the counts: shows that it works, not how fast it is.")
@click.option("--json", "as_json", is_flag=True, help="Print all samples as JSON.")
@click.option("--save", is_flag=True, help=f"Keep the figures in {SAVED_IN}/<date>.json and .md.")
@click.option("--save-in", type=click.Path(file_okay=False), default=SAVED_IN, show_default=True, help="Where --save writes.")
@click.option("--dir", "parent", type=click.Path(exists=True, file_okay=False), help="A directory on the disk to measure.")
@click.option("--no-peers", is_flag=True, help="Leave Redis and NATS out.")
@click.option("--list", "list_rows", is_flag=True, help="Show the rows and stop.")
def command(
    only: tuple[str, ...],
    quick: bool,
    as_json: bool,
    save: bool,
    save_in: str,
    parent: str | None,
    no_peers: bool,
    list_rows: bool,
) -> None:
    """Measure this machine: every row with its target, ratios to peers measured in turn in the same run.

    Peers come from the Debian packages redis-server and nats-server (nats.go needs Go); without them the row says so. All
    files lie in a temporary directory, by default on a disk, never in memory. Exit code 1 when a row could not be measured;
    a missed target is a figure, not an error.
    """
    from rich.console import Console

    from .bench import Bench
    from .machine import default_parent, read_machine
    from .measure import describe_scale
    from .report import Report
    from .rows import ROWS, measure, resolve
    from .scale import FULL, QUICK

    if list_rows:
        for number, name in enumerate(ROWS, 1):
            click.echo(f"{number} {name}")
        return
    try:
        chosen = sorted({resolve(name) for name in only} or ROWS, key=list(ROWS).index)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--only") from exc
    scale = QUICK if quick else FULL
    progress = Console(stderr=True)
    temporary = tempfile.TemporaryDirectory(prefix="triolog-bench-", dir=parent or default_parent())
    with terminable(), temporary as directory, compiled(directory):
        machine = read_machine(directory)
        progress.print(f"measuring in {directory}: {machine.filesystem} on {machine.device}", highlight=False)
        with progress.status("starting") as status:

            def show(name: str, text: str) -> None:
                status.update(f"{name}: {text}")

            rows = []
            for name in chosen:
                rows.append(measure(name, Bench(directory, scale, partial(show, name), not no_peers)))
                progress.print(f"{name}: {rows[-1].failure or 'done'}", highlight=False, markup=False)
    report = Report(datetime.date.today(), machine, describe_scale(scale), rows)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1))
    else:
        report.print(Console())
    if save:
        for path in report.save(Path(save_in)):
            progress.print(f"kept in {path}", highlight=False)
    if report.has_failures:
        sys.exit(EXIT_ROW_FAILED)


@contextlib.contextmanager
def compiled(directory: str) -> Iterator[None]:
    """Let processes find compiled modules, as those of an installation do: where nobody may write them, in `directory`."""
    if not sys.dont_write_bytecode:
        yield
        return
    before = os.environ.copy()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = f"{directory}/bytecode"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end the run as an interrupt does: servers are stopped and files removed."""

    def end(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
