"""`triolog spark demo`: where it runs, what is kept. The story itself is `story`'s."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import click

from ....protocol.extras import how_to_install_group

MIN_ROWS: Final = 1000
CONFIG: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
"""For a job of a minute: a JVM that starts fast rather than one that gets fast. The rest is `session`'s."""


@click.command
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep log, checkpoints and table in this directory, empty or new.",
)
@click.option("--rows", type=click.IntRange(min=MIN_ROWS), metavar="N", help="Use N flights at even distances instead of all.")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed that selects the batches at which the job is killed."
)
@click.option("--json", "as_json", is_flag=True, help="Print only the figures, as JSON.")
def command(data_dir: Path | None, rows: int | None, seed: int, as_json: bool) -> None:
    """Send a year of real flights through a streaming job that is killed twice.

    The job reads flights from a running server and joins them with weather and aircraft. It writes delays by hour, airport and
    carrier to a topic and a Parquet table. Exit code 0 when all checks passed, 1 when one failed, 2 when something is not
    installed, 3 when the server failed.
    """
    from ...demo.flights import find_source, load_flights
    from ...demo.showing import Demo, check_empty, interrupted_by_sigterm, run
    from .story import run_job_story

    _check_installed()
    source = find_source()
    check_empty(data_dir)
    demo = Demo(is_quiet=as_json)
    with interrupted_by_sigterm(), _directory(data_dir) as directory:
        story = partial(run_job_story, demo, source, load_flights(source, rows), directory / "log", directory)
        run(partial(story, seed=seed, config=CONFIG))
    demo.end(seed=seed, data_dir=data_dir)


def _check_installed() -> None:
    """Raise DemoError before anything is started."""
    import importlib.util

    from ...demo.showing import EXIT_NOT_INSTALLED, DemoError
    from ..java import JavaNotFoundError, find_java

    for package in ("pyspark", "pyarrow", "numpy"):
        if importlib.util.find_spec(package) is None:
            how = f"the Python package {package} is not installed: {how_to_install_group('spark-demo')}"
            raise DemoError(how, EXIT_NOT_INSTALLED)
    try:
        find_java()
    except JavaNotFoundError as exc:
        raise DemoError(str(exc), EXIT_NOT_INSTALLED) from exc


@contextlib.contextmanager
def _directory(data_dir: Path | None) -> Iterator[Path]:
    """Yield the folder for everything; a temporary one without --data-dir."""
    if data_dir is not None:
        data_dir.mkdir(parents=True, exist_ok=True)
        yield data_dir.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="triolog-spark-demo-", ignore_cleanup_errors=True) as name:
        yield Path(name)
