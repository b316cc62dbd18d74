"""`triolog demo`: where it runs and what is kept. `story` is what happens."""

from __future__ import annotations

import contextlib
import gc
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import click

MIN_ROWS: Final = 1000
"""Rows at even distances this close include some of the day that is looked up: it has 737 in a row."""


@click.command
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Keep the data in this directory, empty or new."
)
@click.option("--keep", is_flag=True, help="Keep the data, without --data-dir in a temporary directory.")
@click.option("--rows", type=click.IntRange(min=MIN_ROWS), metavar="N", help="Use N flights at even distances instead of all.")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed that selects the record at which the server is killed."
)
@click.option(
    "--console",
    is_flag=False,
    flag_value="127.0.0.1:0",
    metavar="[HOST:PORT]",
    help="Show the data in a browser at the end, until Ctrl-C.  [default address: 127.0.0.1, any port]",
)
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, as JSON.")
def command(data_dir: Path | None, keep: bool, rows: int | None, seed: int, console: str | None, as_json: bool) -> None:
    """Send a year of real flights through a socket, a SIGKILL, and out again by time.

    Exit code 0 when all checks passed, 1 when one failed, 2 when the data is not installed, 3 when the server failed.
    """
    from .flights import find_source, load_flights
    from .showing import Demo, check_empty, interrupted_by_sigterm, run
    from .story import run_story, show

    if console is not None and as_json:
        raise click.UsageError("--console and --json exclude each other. Choose one")
    source = find_source()
    check_empty(data_dir)
    demo = Demo(is_quiet=as_json)
    with interrupted_by_sigterm(), _directories(data_dir, keep) as (log_dir, work_dir):
        gc.disable()  # what is loaded stays: collections would find nothing and take a third of the time
        flights = load_flights(source, rows)
        gc.freeze()
        gc.enable()
        demo.chapter("A year of departures from New York")
        demo.say(f"{len(flights):,} flights of 2013")
        try:
            run(partial(run_story, demo, flights, log_dir, work_dir, seed))
        finally:
            gc.unfreeze()
        kept = log_dir if keep or data_dir is not None else None
        if kept is not None:
            demo.say(f"Look at it with: triolog dump {kept}/flights-0/{0:020d}.log")
        try:
            demo.end(seed=seed, data_dir=kept)
        finally:
            if console is not None:
                with contextlib.suppress(KeyboardInterrupt):
                    run(partial(show, log_dir, work_dir, console, click.echo))


@contextlib.contextmanager
def _directories(data_dir: Path | None, keep: bool) -> Iterator[tuple[Path, Path]]:
    """Yield a folder for the log, and one for the server's ready file and log lines; what is not kept is removed."""
    if keep and data_dir is None:
        work_dir = Path(tempfile.mkdtemp(prefix="triolog-demo-"))
        yield work_dir / "data", work_dir
        return
    with tempfile.TemporaryDirectory(prefix="triolog-demo-") as name:
        yield data_dir or Path(name, "data"), Path(name)
