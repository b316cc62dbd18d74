"""`triolog spark`: the table of its subcommands, each imported when it is called, as those of `triolog` are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from ..cli.main import LazyGroup, Subcommand

SUBCOMMANDS: Final[Mapping[str, Subcommand]] = {
    "export": Subcommand("triolog.tools.spark.jobs.export", "Write records of a log directory as Parquet."),
    "load": Subcommand("triolog.tools.spark.jobs.load", "Write rows of Parquet, CSV or JSON lines to a topic."),
    "verify": Subcommand("triolog.tools.spark.jobs.verify", "Check every file of a stopped log directory."),
    "reindex": Subcommand("triolog.tools.spark.jobs.reindex", "Make the indexes of a stopped log directory anew."),
    "compact": Subcommand("triolog.tools.spark.jobs.compact", "Compact topics of a stopped log directory."),
    "profile": Subcommand("triolog.tools.spark.jobs.profile_command", "Show rates, sizes, keys and lateness of topics."),
    "init": Subcommand("triolog.tools.spark.init", "Write a declarative pipeline that reads from and writes to triolog."),
    "pack": Subcommand("triolog.tools.spark.pack", "Write the Python packages of executors to an archive."),
    "home": Subcommand("triolog.tools.spark.home", "Print a SPARK_HOME with which Spark's Python starts faster."),
    "demo": Subcommand(
        "triolog.tools.spark.demo.command", "A year of flights through a job that is killed twice.", is_in_clone=True
    ),
    "bench": Subcommand(
        "triolog.tools.spark.bench.command", "Measure reading, writing and exporting in CPU seconds.", is_in_clone=True
    ),
}


@click.group("spark", cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """Run Spark pipelines on triolog. Needs the extra `spark`."""
