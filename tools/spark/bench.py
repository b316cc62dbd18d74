"""`triolog spark bench`: what reading, writing and exporting cost, in CPU seconds of the JVM and its workers, and as ratios.

CPU seconds and ratios taken in turn say something on a machine that others use too; times on the clock would not.
"""

from __future__ import annotations

import datetime
from typing import Final

import attrs
import click

from ..bench.options import Wanted, measuring, rounds

NAME: Final = "spark"


@click.command
@measuring(name=NAME)
@rounds
def command(wanted: Wanted, rounds: int | None) -> None:
    """Measure the data sources, the sink and the export job on this machine, each with its target.

    Exit code 1 when a row could not be measured; a missed target is a figure, not an error.
    """
    from rich.console import Console

    from ...protocol.errors import TriologError
    from ..bench.bench import Bench
    from ..bench.machine import read_machine
    from ..bench.measure import describe_scale
    from ..bench.report import Report
    from ..bench.scale import FULL, QUICK
    from .bench_place import open_place
    from .bench_rows import ROWS, measure

    chosen = wanted.rows_of(ROWS)
    scale = QUICK if wanted.quick else FULL
    scale = attrs.evolve(scale, rounds=rounds or scale.rounds)
    progress = Console(stderr=True)
    with wanted.directory() as directory:
        machine = read_machine(directory)
        rows = []
        with progress.status("starting") as status:
            bench = Bench(directory, scale, lambda text: status.update(text))
            try:
                with open_place(bench) as place:
                    for name in chosen:
                        rows.append(measure(name, place))
                        progress.print(f"{name}: {rows[-1].failure or 'done'}", highlight=False, markup=False)
            except TriologError as exc:
                raise click.ClickException(f"the benchmark cannot start: {exc}") from exc
    wanted.conclude(Report(datetime.date.today(), machine, describe_scale(scale), rows, NAME), progress)
