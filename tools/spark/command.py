"""`triolog spark`: the table of its subcommands, each imported when it is called, as those of `triolog` are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from ..cli.main import LazyGroup, Subcommand

SUBCOMMANDS: Final[Mapping[str, Subcommand]] = {
    "init": Subcommand("triolog.tools.spark.init", "Write a declarative pipeline that reads from and writes to triolog."),
    "demo": Subcommand("triolog.tools.spark.demo.command", "A year of flights through a job that is killed twice."),
    "bench": Subcommand("triolog.tools.spark.bench", "Measure reading, writing and exporting in CPU seconds."),
}


@click.group("spark", cls=LazyGroup, subcommands=SUBCOMMANDS)
def command() -> None:
    """Spark pipelines on triolog. Needs the extra: pip install 'triolog[spark]'."""
