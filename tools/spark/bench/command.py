"""`triolog spark bench`: what reading, writing and exporting cost, in CPU seconds of the JVM and its workers, and as ratios.

CPU seconds and ratios taken in turn say something on a machine that others use too; times on the clock would not.
"""

from __future__ import annotations

import attrs
import click

from ...bench.options import Wanted, measuring, rounds


@click.command
@measuring(name="spark")
@rounds
def command(wanted: Wanted, rounds: int | None) -> None:
    """Measure the data sources, the sink and the export job on this machine, each with its target.

    Exit code 1 when a row could not be measured. A missed target is a figure, not an error.
    """
    from ...bench.measuring.bench import FULL, QUICK
    from .rows import BENCHMARK, ROWS

    chosen = wanted.rows_of(ROWS)
    scale = QUICK if wanted.quick else FULL
    BENCHMARK.run(wanted, chosen, attrs.evolve(scale, rounds=rounds or scale.rounds))
