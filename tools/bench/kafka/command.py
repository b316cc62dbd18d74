"""`triolog bench-kafka`: triolog, Apache Kafka and kfake in turn in one run, under the same generator."""

from __future__ import annotations

from typing import Final

import attrs
import click

from ..options import Wanted, list_rows, measuring, rounds

ROUNDS: Final = 5


@click.command
@measuring(quick="A small share of the counts: shows that it works, not how fast it is.", name="kafka")
@rounds
@click.option("--starts", type=click.IntRange(min=1), help="Records of the fixture in one round, such as 10000.")
@click.option("--no-peers", is_flag=True, help="Leave out Apache Kafka and kfake.")
@list_rows
def command(wanted: Wanted, rounds: int | None, starts: int | None, no_peers: bool, list_rows: bool) -> None:
    """Measure triolog beside Apache Kafka and kfake, with ratios to their figures of the same run, each with its target.

    The generator is a Go program, built once, so Go is required. Kafka's jars come from Maven, with a JDK of 17 or newer. If
    one of them is missing, the ratios to Kafka say so. All brokers run every load twice before the first measurement, except
    with --quick. Exit code 1 when a row could not be measured. A missed target is a figure, not an error.
    """
    from ..measuring.bench import FULL, Scale
    from .rows import ROWS, benchmark

    if list_rows:
        click.echo("\n".join(ROWS))
        return
    chosen = wanted.rows_of(ROWS)
    scale = Scale("quick", 1, 0.02) if wanted.quick else attrs.evolve(FULL, rounds=ROUNDS)
    scale = attrs.evolve(scale, rounds=rounds or scale.rounds)
    benchmark(starts=starts, quick_compiler=wanted.quick, is_warm=not wanted.quick).run(
        wanted, chosen, scale, with_peers=not no_peers
    )
