"""Running the pieces of a job as Spark tasks, a group of them at a time, with what is done kept in a manifest.

A piece is a picklable value with a name; the function that works on it runs in an executor and answers a small map, which is
the same when the piece is run again. A group is a few pieces for each core: what a killed driver loses is at most one group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from ....protocol.errors import TriologError
from ...cli.terminal.output import count_text
from ...export.manifest import Manifest
from ...export.pieces import JobError, Piece, Result
from ..sink.worker import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

PIECES_PER_CORE: Final = 8
"""Of a group: a group ends with its slowest piece, and its Spark job costs 0.1 to 0.2 s."""


@attrs.frozen(kw_only=True)
class JobProgress:
    """The progress of a job; `done_before` pieces were done by an earlier run."""

    pieces: int
    done: int
    done_before: int
    total_bytes: int
    done_bytes: int
    records: int


Progress = Callable[[JobProgress], None]


def no_progress(progress: JobProgress) -> None:
    """For jobs that nobody watches."""


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
    before = sum(piece.name in manifest.done for piece in pieces)
    todo = [piece for piece in pieces if piece.name not in manifest.done]
    context = spark.sparkContext
    size = max(1, context.defaultParallelism) * PIECES_PER_CORE
    report(pieces, manifest, before, progress)
    try:
        for start in range(0, len(todo), size):
            group = todo[start : start + size]
            context.setJobDescription(f"{manifest.job}: pieces {before + start + 1} to {before + start + len(group)}")
            answers = context.parallelize(group, len(group)).mapPartitions(partial(_work, work)).collect()
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
        kept = f"; what is done is in {manifest.path}, the same command goes on from there" if manifest.path else ""
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
    done = [piece for piece in pieces if piece.name in manifest.done]
    progress(
        JobProgress(
            pieces=len(pieces),
            done=len(done),
            done_before=before,
            total_bytes=sum(piece.size_bytes for piece in pieces),
            done_bytes=sum(piece.size_bytes for piece in done),
            records=sum(int(manifest.done[piece.name].get("records", 0)) for piece in done),
        )
    )
