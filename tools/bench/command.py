"""`triolog bench`: measure, compare with other servers and bare loops in the same run, and print the table."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from types import FrameType

import click

from .options import Wanted, list_rows, measuring, no_peers


@click.command
@measuring(only="Name or number of a row; may be repeated.")
@no_peers(help="Leave Redis and NATS out.")
@list_rows
def command(wanted: Wanted, no_peers: bool, list_rows: bool) -> None:
    """Measure this machine: every row with its target, ratios to peers measured in turn in the same run.

    Peers come from the Debian packages redis-server and nats-server (nats.go needs Go); without them the row says so. All
    files lie in a temporary directory, by default on a disk, never in memory. Exit code 1 when a row could not be measured;
    a missed target is a figure, not an error.
    """
    from rich.console import Console

    from .bench import Bench
    from .machine import read_machine
    from .measure import describe_scale
    from .report import Report
    from .rows import ROWS, measure, resolve
    from .scale import FULL, QUICK

    if list_rows:
        for number, name in enumerate(ROWS, 1):
            click.echo(f"{number} {name}")
        return
    try:
        chosen = sorted({resolve(name) for name in wanted.only} or ROWS, key=list(ROWS).index)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--only") from exc
    scale = QUICK if wanted.quick else FULL
    progress = Console(stderr=True)
    with terminable(), wanted.directory() as directory, compiled(directory):
        machine = read_machine(directory)
        progress.print(f"measuring in {directory}: {machine.filesystem} on {machine.device}", highlight=False)
        with progress.status("starting") as status:

            def show(name: str, text: str) -> None:
                status.update(f"{name}: {text}")

            rows = []
            for name in chosen:
                rows.append(measure(name, Bench(directory, scale, partial(show, name), not no_peers)))
                progress.print(f"{name}: {rows[-1].failure or 'done'}", highlight=False, markup=False)
    wanted.conclude(Report(datetime.date.today(), machine, describe_scale(scale), rows), progress)


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
