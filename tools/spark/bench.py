"""`triolog spark bench`: what reading, writing and exporting cost, in CPU seconds of the JVM and its workers, and as ratios.

CPU seconds and ratios taken in turn say something on a machine that others use too; times on the clock would not.
"""

from __future__ import annotations

import datetime
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

import attrs
import click

SAVED_IN: Final = "docs/benchmarks"
NAME: Final = "spark"
EXIT_ROW_FAILED: Final = 1
PIPE_WIDTH: Final = 140


@click.command
@click.option("--only", "only", multiple=True, metavar="ROW", help="Name of a row; may be repeated.")
@click.option("--quick", is_flag=True, help="A tenth of the counts: shows that it works, not how fast it is.")
@click.option("--rounds", type=click.IntRange(min=1), help="Samples of each measure instead of the scale's number.")
@click.option("--json", "as_json", is_flag=True, help="Print all samples as JSON.")
@click.option("--save", is_flag=True, help=f"Keep the figures in {SAVED_IN}/<date>-{NAME}.json and .md.")
@click.option("--save-in", type=click.Path(file_okay=False), default=SAVED_IN, show_default=True, help="Where --save writes.")
@click.option("--dir", "parent", type=click.Path(exists=True, file_okay=False), help="A directory on the disk to measure.")
def command(
    only: tuple[str, ...], quick: bool, rounds: int | None, as_json: bool, save: bool, save_in: str, parent: str | None
) -> None:
    """Measure the data sources, the sink and the export job on this machine, each with its target.

    Exit code 1 when a row could not be measured; a missed target is a figure, not an error.
    """
    from rich.console import Console

    from ...protocol.errors import TriologError
    from ..bench.bench import Bench
    from ..bench.machine import default_parent, read_machine
    from ..bench.measure import describe_scale
    from ..bench.report import Report
    from ..bench.scale import FULL, QUICK
    from .bench_place import open_place
    from .bench_rows import ROWS, measure

    if unknown := [name for name in only if name not in ROWS]:
        raise click.BadParameter(f"no row is called {unknown[0]!r}; there are {', '.join(ROWS)}", param_hint="--only")
    scale = QUICK if quick else FULL
    scale = attrs.evolve(scale, rounds=rounds or scale.rounds)
    progress = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="triolog-bench-", dir=parent or default_parent()) as directory:
        machine = read_machine(directory)
        rows = []
        with progress.status("starting") as status:
            bench = Bench(directory, scale, lambda text: status.update(text))
            try:
                with open_place(bench) as place:
                    for name in [name for name in ROWS if not only or name in only]:
                        rows.append(measure(name, place))
                        progress.print(f"{name}: {rows[-1].failure or 'done'}", highlight=False, markup=False)
            except TriologError as exc:
                raise click.ClickException(f"the benchmark cannot start: {exc}") from exc
    report = Report(datetime.date.today(), machine, describe_scale(scale), rows, NAME)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1))
    else:
        console = Console()
        report.print(console if console.is_terminal else Console(width=PIPE_WIDTH))
    if save:
        for path in report.save(Path(save_in)):
            progress.print(f"kept in {path}", highlight=False)
    if report.has_failures:
        sys.exit(EXIT_ROW_FAILED)
