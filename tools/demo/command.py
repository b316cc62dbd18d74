"""`triolog demo`: where it runs, what is kept, what is seen. The story itself is `story`'s, its end `ending`'s."""

from __future__ import annotations

import contextlib
import gc
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .ending import CheckFailedError, DemoFindings, check_empty, find_flights, run

if TYPE_CHECKING:
    from .flights import Flight

PAGE_NAME: Final = "demo.html"
MIN_ROWS: Final = 1000
"""Rows at even distances this close include some of the day that is looked up: it has 737 in a row."""


@click.command
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Keep the data there: empty or new.")
@click.option("--keep", is_flag=True, help="Keep the data, in a temporary directory without --data-dir.")
@click.option("--rows", type=click.IntRange(min=MIN_ROWS), metavar="N", help="N flights at even distances instead of all.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides at which record the server is killed.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write what is shown as a page, with drawings.")
@click.option(
    "--console",
    is_flag=False,
    flag_value="127.0.0.1:0",
    metavar="[HOST:PORT]",
    help="Show the data in a browser at the end, until Ctrl-C; 127.0.0.1 and any port by default.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, and nothing else.")
def command(
    data_dir: Path | None, keep: bool, rows: int | None, seed: int, html: Path | None, console: str | None, as_json: bool
) -> None:
    """A year of real flights through a socket, a SIGKILL, and out again by time.

    Exit code 0 when all checks held, 1 when one did not, 2 when the data is not installed, 3 when the server failed.
    Data that is kept has a page beside it, demo.html, with figures, checks and drawings; --html FILE writes it in any case.
    """
    if console is not None and as_json:
        raise click.UsageError("--console is for people to look at, --json for programs; say one of both")
    source = find_flights()
    check_empty(data_dir)
    with _directories(data_dir, keep) as (log_dir, work_dir):
        is_kept = keep or data_dir is not None
        html = html or (log_dir / PAGE_NAME if is_kept else None)
        shows = {"is_quiet": as_json, "is_kept": is_kept, "is_shown": console is not None}
        findings = _tell(source, rows, seed, log_dir, work_dir, html=html, **shows)
        if as_json:
            click.echo(findings.to_json(seed=seed, data_dir=log_dir if is_kept else None, html=html))
        if console is not None:
            _show(log_dir, work_dir, console)
    findings.judge()


def _show(log_dir: Path, work_dir: Path, console: str) -> None:
    from .page.shown import show

    with contextlib.suppress(KeyboardInterrupt):
        run(partial(show, log_dir, work_dir, console, click.echo))


@contextlib.contextmanager
def _directories(data_dir: Path | None, keep: bool) -> Iterator[tuple[Path, Path]]:
    """Where the log goes, and where the server's ready file and log lines do; what is not kept is removed."""
    if keep and data_dir is None:
        work_dir = Path(tempfile.mkdtemp(prefix="triolog-demo-"))
        yield work_dir / "data", work_dir
        return
    with tempfile.TemporaryDirectory(prefix="triolog-demo-") as name:
        yield data_dir or Path(name, "data"), Path(name)


def _tell(
    source: Path,
    rows: int | None,
    seed: int,
    log_dir: Path,
    work_dir: Path,
    *,
    is_quiet: bool,
    is_kept: bool,
    is_shown: bool,
    html: Path | None,
) -> DemoFindings:
    from .page.document import page
    from .page.narrator import PageNarrator
    from .story import TOPIC, run_story
    from .terminal import FlightsTerminal, open_console

    console = open_console(quiet=is_quiet)
    with console.status("reading the source") if console.is_terminal else contextlib.nullcontext():
        flights, seconds = _load(source, rows)
    gc.freeze()  # they stay until the end: the collector would look at all of them again and again
    terminal = FlightsTerminal(console, flights)
    terminal.loaded(seconds)
    told = PageNarrator(terminal)
    try:
        findings = run(partial(run_story, flights, log_dir, work_dir, seed, told))
    finally:
        terminal.close()
        gc.unfreeze()
    if html is not None:
        _write(html, page(told, findings))
    look_at = log_dir / f"{TOPIC}-0" / f"{0:020d}.log"
    terminal.ended(findings.failed_count, len(findings.checks), look_at, is_kept=is_kept, is_shown=is_shown, html=html)
    return findings


def _write(html: Path, document: str) -> None:
    try:
        html.write_text(document, encoding="utf-8")
    except OSError as exc:
        raise CheckFailedError(f"{html}: {exc.strerror}; say with --html FILE where the page can be written") from exc


def _load(source: Path, rows: int | None) -> tuple[list[Flight], float]:
    """Read the flights, without garbage collections: they would find nothing and take a third of the time."""
    from .flights import load_flights

    begin = time.perf_counter()
    gc.disable()
    try:
        return load_flights(source, rows), time.perf_counter() - begin
    finally:
        gc.enable()
