"""`triolog bench-kafka`: triolog, Apache Kafka and kfake in turn in one run, under the same generator."""

from __future__ import annotations

import datetime
from typing import Final

import attrs
import click

from ..options import Wanted, list_rows, measuring, no_peers, rounds

NAME: Final = "kafka"
ROUNDS: Final = 3


@click.command
@measuring(quick="A small share of the counts: shows that it works, not how fast it is.", name=NAME)
@rounds
@click.option("--starts", type=click.IntRange(min=1), help="Of the fixture, in one round, such as 10000.")
@no_peers(help="Leave Apache Kafka and kfake out.")
@list_rows
def command(wanted: Wanted, rounds: int | None, starts: int | None, no_peers: bool, list_rows: bool) -> None:
    """Measure triolog beside Apache Kafka and kfake, with ratios to their figures of the same run, each with its target.

    The generator is a Go program, built once: Go is needed. Kafka's jars come from Maven, with a JDK of 17 or newer; where
    one of them is missing the ratios to Kafka say so. Exit code 1 when a row could not be measured; a missed target is a
    figure, not an error.
    """
    from rich.console import Console

    from ..bench import Bench
    from ..command import compiled, terminable
    from ..machine import read_machine
    from ..measure import describe_scale
    from ..peer import PeerMissingError
    from ..report import Report
    from ..scale import FULL, Scale
    from .brokers import open_brokers
    from .rows import ROWS, measure

    if list_rows:
        click.echo("\n".join(ROWS))
        return
    chosen = wanted.rows_of(ROWS)
    scale = Scale("quick", 1, 0.02) if wanted.quick else attrs.evolve(FULL, rounds=ROUNDS)
    scale = attrs.evolve(scale, rounds=rounds or scale.rounds)
    progress = Console(stderr=True)
    with terminable(), wanted.directory() as directory, compiled(directory):
        machine = read_machine(directory)
        progress.print(f"measuring in {directory}: {machine.filesystem} on {machine.device}", highlight=False)
        with progress.status("starting") as status:
            bench = Bench(directory, scale, status.update, not no_peers)
            try:
                with open_brokers(bench, starts=starts, quick_compiler=wanted.quick) as brokers:
                    rows = []
                    for name in chosen:
                        rows.append(measure(name, brokers))
                        progress.print(f"{name}: {rows[-1].failure or 'done'}", highlight=False, markup=False)
            except PeerMissingError as exc:
                raise click.ClickException(f"the benchmark cannot start: {exc}") from exc
    report = Report(datetime.date.today(), machine, describe_scale(scale), rows, NAME, brokers.versions)
    wanted.conclude(report, progress)
