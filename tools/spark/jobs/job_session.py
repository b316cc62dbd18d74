"""The code that the commands of jobs share: options, the session and its end, progress, errors as one line; and running the
pieces of a job as Spark tasks, a group of them at a time, with the finished ones kept in a manifest.

A piece is a picklable value with a name; the function that works on it runs in an executor and answers a small map, which is
the same when the piece is run again. A group is a few pieces for each core: a killed driver loses at most one group.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import click

from ....protocol.errors import TriologError
from ...cli.terminal.failures import FailedError
from ...cli.terminal.output import count_text, printable
from ...export.manifest import JobError, Manifest, Piece, Result
from ..sink.worker import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ....server.storage.directory.inventory import PartitionFiles

directories_argument = click.argument(
    "directories", nargs=-1, required=True, metavar="DIR...", type=click.Path(exists=True, file_okay=False)
)
master_option = click.option(
    "--master", default="local[*]", show_default=True, help="Spark master; a cluster needs the files under the same paths."
)
manifest_option = click.option(
    "--manifest",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that records the progress: the same command continues from there.",
)


@contextmanager
def job_session(name: str, master: str, failure: type[click.ClickException] = FailedError) -> Iterator[SparkSession]:
    """A session for the time of the block. `failure` for what goes wrong in it, and with Spark itself."""
    spark: SparkSession | None = None
    is_mine = _is_without_session()
    try:
        from ..session import session

        spark = session(f"triolog {name}", master=master, config={"spark.ui.enabled": "false"}, is_quiet=True)
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


T = TypeVar("T")

PIECES_PER_CORE: Final = 8
"""Of a group: a group ends with its slowest piece, and its Spark job costs 0.1 to 0.2 s."""


@attrs.frozen(kw_only=True)
class JobProgress:
    """The progress of a job; `done_before` pieces were done by an earlier run."""

    pieces: int
    done: int
    done_before: int
    records: int


Progress = Callable[[JobProgress], None]


def no_progress(progress: JobProgress) -> None:
    """For jobs that nobody watches."""


def segment_sizes(files: PartitionFiles) -> list[list[int]]:
    """Return the base offset and size of each segment: a later run compares them to see whether a server has written since."""
    return [[segment.base_offset, segment.log_bytes] for segment in files.segments]


def run_pieces(
    spark: SparkSession,
    pieces: Sequence[Piece[T]],
    work: Callable[[T], Result],
    manifest: Manifest,
    progress: Progress = no_progress,
) -> list[Result]:
    """Do what is not done yet, and answer the results of all pieces in their order. JobError names the first that failed.

    A result's `records`, if there is one, is counted in the progress.
    """
    from ..carried import carried

    before = sum(piece.name in manifest.done for piece in pieces)
    todo = [piece for piece in pieces if piece.name not in manifest.done]
    context = spark.sparkContext
    size = max(1, context.defaultParallelism) * PIECES_PER_CORE
    report(pieces, manifest, before, progress)
    try:
        for start in range(0, len(todo), size):
            group = todo[start : start + size]
            context.setJobDescription(f"{manifest.job}: pieces {before + start + 1} to {before + start + len(group)}")
            answers = context.parallelize(group, len(group)).mapPartitions(carried(partial(_work, work))).collect()
            manifest.add({name: result for name, result, failure in answers if failure is None})
            report(pieces, manifest, before, progress)
            _check([(name, failure) for name, _, failure in answers if failure is not None], manifest)
    finally:
        context.setJobDescription(None)  # type: ignore[arg-type]
    return [manifest.done[piece.name] for piece in pieces]


def _check(failed: Sequence[tuple[str, str]], manifest: Manifest) -> None:
    if failed:
        name, failure = failed[0]
        others = f" ({count_text(len(failed) - 1, 'other piece')} failed too)" if len(failed) > 1 else ""
        kept = f". {manifest.path} records the progress: the same command continues from there" if manifest.path else ""
        raise JobError(f"{manifest.job} of {name} failed: {failure}{others}{kept}")


def _work(work: Callable[[T], Result], pieces: Iterable[Piece[T]]) -> list[tuple[str, Result, str | None]]:
    """In a task. What can be expected to fail is an answer, so that the other pieces of the group are not lost."""
    settle()
    answers: list[tuple[str, Result, str | None]] = []
    for piece in pieces:
        try:
            answers.append((piece.name, work(piece.what), None))
        except (TriologError, OSError) as exc:
            answers.append((piece.name, {}, f"{type(exc).__name__}: {exc}"))
    return answers


def report(pieces: Sequence[Piece[T]], manifest: Manifest, before: int, progress: Progress) -> None:
    """Tell `progress` what of the pieces the manifest has as done."""
    done = [piece.name for piece in pieces if piece.name in manifest.done]
    records = sum(int(manifest.done[name].get("records", 0)) for name in done)
    progress(JobProgress(pieces=len(pieces), done=len(done), done_before=before, records=records))
