"""Export as Spark tasks: each piece of `triolog.tools.export.layout` is one, whose layout it is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...export.layout import Export, Exported, begin, export_piece, finish
from .runner import Progress, no_progress, run_pieces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export(spark: SparkSession, job: Export, progress: Progress = no_progress) -> Exported:
    """Run the export, or what an earlier run has left of it. JobError, ManifestError, StorageError, OSError."""
    manifest, pieces = begin(job)
    results = run_pieces(spark, pieces, partial(export_piece, job), manifest, progress)
    return finish(job, manifest, results)
