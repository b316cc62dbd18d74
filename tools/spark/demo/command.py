"""`triolog spark demo`: where it runs, what is kept, how it ends. The story itself is `story`'s."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from .story import Findings

MIN_ROWS: Final = 1000
DEFAULT_PICTURE: Final = "delay-by-hour.png"
CONFIG: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
"""For a job of a minute: a JVM that starts fast rather than one that gets fast. The rest is `session`'s."""


class CheckFailedError(click.ClickException):
    """A check did not hold, or the job failed before all of them were made."""

    exit_code = 1


class NotInstalledError(click.ClickException):
    """The flights, Spark, Java or matplotlib are not there."""

    exit_code = 2


class ServerUnusableError(click.ClickException):
    """The server did not start or did not stop."""

    exit_code = 3


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
    from ...demo.flights import SourceMissingError, find_source

    _check_installed()
    try:
        source = find_source()
    except SourceMissingError as exc:
        raise NotInstalledError(str(exc)) from exc
    if data_dir is not None and data_dir.exists() and any(data_dir.iterdir()):
        raise click.UsageError(f"--data-dir {data_dir} is not empty; the demo starts with an empty log")
    with _directory(data_dir) as directory:
        findings = _tell(source, rows, seed, directory, picture, is_quiet=as_json)
    if as_json:
        click.echo(json.dumps(_as_json(findings, seed, picture, data_dir), indent=2))
    if not findings.all_held:
        raise CheckFailedError("; ".join(f"{check.name}: {check.detail}" for check in findings.checks if not check.ok))


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


def _tell(source: Path, rows: int | None, seed: int, directory: Path, picture: Path, *, is_quiet: bool) -> Findings:
    import trio

    from ....protocol.errors import TriologError
    from ...demo.flights import load_flights
    from ...demo.server_process import ServerFailedError
    from ...demo.terminal import open_console
    from .job_process import JobFailedError
    from .story import run_story
    from .terminal import Terminal

    terminal = Terminal(open_console(quiet=is_quiet))
    flights = load_flights(source, rows)
    try:

        async def main() -> Findings:
            return await run_story(
                source, flights, directory / "log", directory, seed=seed, narrator=terminal, picture=picture, config=CONFIG
            )

        findings = trio.run(main)
    except BaseException as exc:
        error = _first(exc)
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from exc
        if isinstance(error, ServerFailedError):
            raise ServerUnusableError(str(error)) from exc
        if isinstance(error, OSError | TriologError | JobFailedError):
            raise CheckFailedError(f"the demo cannot go on: {error}") from exc
        raise
    terminal.ended(sum(not check.ok for check in findings.checks), len(findings.checks))
    return findings


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _as_json(findings: Findings, seed: int, picture: Path, kept: Path | None) -> dict[str, Any]:
    figures = {name: round(value, 3) if isinstance(value, float) else value for name, value in findings.figures.items()}
    return {
        "ok": findings.all_held,
        "seed": seed,
        **figures,
        "checks": [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in findings.checks],
        "picture": str(picture),
        "data_dir": None if kept is None else str(kept),
    }


if __name__ == "__main__":
    command(prog_name="triolog spark demo")
