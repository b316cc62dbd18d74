"""The code that the commands of jobs share: options, the session and its end, progress, errors as one line."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ....protocol.errors import TriologError
from ...cli.terminal.failures import FailedError
from ...cli.terminal.output import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .runner import JobProgress, Progress

directories_argument = click.argument(
    "directories", nargs=-1, required=True, metavar="DIR...", type=click.Path(exists=True, file_okay=False)
)
master_option = click.option(
    "--master", default="local[*]", show_default=True, help="Where Spark runs; a cluster needs the files under the same paths."
)
manifest_option = click.option(
    "--manifest",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that keeps what is done: the same command goes on from there.",
)


@contextmanager
def job_session(name: str, master: str, failure: type[click.ClickException] = FailedError) -> Iterator[SparkSession]:
    """A session for the time of the block. `failure` for what goes wrong in it, and with Spark itself."""
    spark: SparkSession | None = None
    is_mine = _is_without_session()
    try:
        from ..session import session

        spark = session(f"triolog {name}", master=master, config={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
        yield spark
    except TriologError as exc:
        raise failure(printable(str(exc))) from exc
    except OSError as exc:
        raise failure(printable(f"{exc.filename or name}: {exc.strerror or exc}")) from exc
    except Exception as exc:
        if not _is_sparks(exc):
            raise
        raise failure(printable(cause(str(exc)))) from exc
    finally:
        if spark is not None and is_mine:
            _stop(spark)


@contextmanager
def watched(what: str) -> Iterator[Progress]:
    """A line on a terminal that says how far the job is; without a terminal nothing."""
    import sys

    is_seen = sys.stderr.isatty()

    def show(progress: JobProgress) -> None:
        if is_seen:
            before = f", {progress.done_before:,} of them before" if progress.done_before else ""
            text = f"{what}: {progress.done:,} of {progress.pieces:,} pieces{before}, {progress.records:,} records"
            click.echo(f"\r\x1b[2K{text}", nl=False, err=True)

    try:
        yield show
    finally:
        if is_seen:
            click.echo("\r\x1b[2K", nl=False, err=True)


def _is_without_session() -> bool:
    """Return whether the job creates a session: an existing one is used, and left as it is."""
    import sys

    if "pyspark.sql" not in sys.modules:
        return True
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is None


def _is_sparks(exc: Exception) -> bool:
    """An error of PySpark, or one of its JVM that PySpark has no class for: a lost worker, a file that cannot be read."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return isinstance(exc, PySparkException | Py4JError)


def _stop(spark: SparkSession) -> None:
    """Stop a session. That its JVM is gone is not an error here: another one is being reported."""
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, OSError):
        spark.stop()


def cause(text: str) -> str:
    """Of an error of Spark, which carries the stacks of two languages: what Python said last; else what Java said first, and
    what it names as the last cause."""
    if said := re.findall(r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", text, re.MULTILINE):
        return str(said[-1])
    if thrown := re.findall(r"^(?:: |Caused by: )(?:[\w$]+\.)+[\w$]+: (.+)$", text, re.MULTILINE):
        return ": ".join(dict.fromkeys((thrown[0].strip(), thrown[-1].strip())))
    return text.strip().partition("\n")[0]
