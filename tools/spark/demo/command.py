"""`triolog spark demo`: where it runs, what is kept. The story itself is `story`'s."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import click

from ...demo.ending import DemoFindings, NotInstalledError, check_empty, find_flights, run

MIN_ROWS: Final = 1000
DEFAULT_PICTURE: Final = "delay-by-hour.png"
CONFIG: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
"""For a job of a minute: a JVM that starts fast rather than one that gets fast. The rest is `session`'s."""


@click.command
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DEFAULT_PICTURE,
    show_default=True,
    help="Where the plot goes.",
)
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Keep log, checkpoints and table there: empty or new."
)
@click.option("--rows", type=click.IntRange(min=MIN_ROWS), metavar="N", help="N flights at even distances instead of all.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides at which batches the job is killed.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, and nothing else.")
def command(picture: Path, data_dir: Path | None, rows: int | None, seed: int, as_json: bool) -> None:
    """A year of real flights through a streaming job that is killed twice.

    Flights stream from a running server, are joined with weather and aircraft, and become delays by hour, airport and carrier
    in a topic and a Parquet table. Exit code 0 when all checks held, 1 when one did not, 2 when something is not installed,
    3 when the server failed.
    """
    _check_installed()
    source = find_flights()
    check_empty(data_dir)
    if not picture.absolute().parent.is_dir():
        raise click.UsageError(f"--picture {picture}: there is no folder {picture.absolute().parent}")
    with _directory(data_dir) as directory:
        findings = _tell(source, rows, seed, directory, picture, is_quiet=as_json)
    if as_json:
        click.echo(findings.to_json(seed=seed, picture=picture, data_dir=data_dir))
    findings.judge()


def _check_installed() -> None:
    """Before anything is started: what would otherwise be missing in the middle."""
    import importlib.util

    from ..java import JavaNotFoundError, find_java

    for package in ("pyspark", "pyarrow", "numpy", "matplotlib"):
        if importlib.util.find_spec(package) is None:
            raise NotInstalledError(f"the Python package {package} is not installed: pip install 'triolog[spark-demo]'")
    try:
        find_java()
    except JavaNotFoundError as exc:
        raise NotInstalledError(str(exc)) from exc


@contextlib.contextmanager
def _directory(data_dir: Path | None) -> Iterator[Path]:
    """Where everything goes; without a wish a temporary one."""
    if data_dir is not None:
        data_dir.mkdir(parents=True, exist_ok=True)
        yield data_dir.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="triolog-spark-demo-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _tell(source: Path, rows: int | None, seed: int, directory: Path, picture: Path, *, is_quiet: bool) -> DemoFindings:
    from ...demo.flights import load_flights
    from ...demo.terminal import open_console
    from .job_process import JobFailedError
    from .story import run_job_story
    from .terminal import JobTerminal

    terminal = JobTerminal(open_console(quiet=is_quiet))
    flights = load_flights(source, rows)
    story = partial(run_job_story, source, flights, directory / "log", directory)
    told = partial(story, seed=seed, narrator=terminal, picture=picture, config=CONFIG)
    findings = run(told, failures=(JobFailedError,))
    terminal.ended(findings.failed_count, len(findings.checks))
    return findings
