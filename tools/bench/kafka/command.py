"""`triolog bench-kafka`: triolog, Apache Kafka and kfake in turn in one run, under the same generator."""

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
NAME: Final = "kafka"
ROUNDS: Final = 3
EXIT_ROW_FAILED: Final = 1
PIPE_WIDTH: Final = 140


@click.command
@click.option("--only", "only", multiple=True, metavar="ROW", help="Name of a row; may be repeated.")
@click.option("--quick", is_flag=True, help="A small share of the counts: shows that it works, not how fast it is.")
@click.option("--rounds", type=click.IntRange(min=1), help="Samples of each measure instead of the scale's number.")
@click.option("--starts", type=click.IntRange(min=1), help="Of the fixture, in one round, such as 10000.")
@click.option("--json", "as_json", is_flag=True, help="Print all samples as JSON.")
@click.option("--save", is_flag=True, help=f"Keep the figures in {SAVED_IN}/<date>-{NAME}.json and .md.")
@click.option("--save-in", type=click.Path(file_okay=False), default=SAVED_IN, show_default=True, help="Where --save writes.")
@click.option("--dir", "parent", type=click.Path(exists=True, file_okay=False), help="A directory on the disk to measure.")
@click.option("--no-peers", is_flag=True, help="Leave Apache Kafka and kfake out.")
@click.option("--list", "list_rows", is_flag=True, help="Show the rows and stop.")
def command(
    only: tuple[str, ...],
    quick: bool,
    rounds: int | None,
    starts: int | None,
    as_json: bool,
    save: bool,
    save_in: str,
    parent: str | None,
    no_peers: bool,
    list_rows: bool,
) -> None:
    """Measure triolog beside Apache Kafka and kfake, with ratios to their figures of the same run, each with its target.

    The generator is a Go program, built once: Go is needed. Kafka's jars come from Maven, with a JDK of 17 or newer; where
    one of them is missing the ratios to Kafka say so. Exit code 1 when a row could not be measured; a missed target is a
    figure, not an error.
    """
    from rich.console import Console

    from ..bench import Bench
    from ..command import compiled, terminable
    from ..machine import default_parent, read_machine
    from ..measure import describe_scale
    from ..peer import PeerMissingError
    from ..report import Report
    from ..scale import FULL, Scale
    from .brokers import open_brokers
    from .rows import ROWS, measure

    if list_rows:
        click.echo("\n".join(ROWS))
        return
    if unknown := [name for name in only if name not in ROWS]:
        raise click.BadParameter(f"no row is called {unknown[0]!r}; there are {', '.join(ROWS)}", param_hint="--only")
    scale = Scale("quick", 1, 0.02) if quick else attrs.evolve(FULL, rounds=ROUNDS)
    scale = attrs.evolve(scale, rounds=rounds or scale.rounds)
    progress = Console(stderr=True)
    temporary = tempfile.TemporaryDirectory(prefix="triolog-bench-", dir=parent or default_parent())
    with terminable(), temporary as directory, compiled(directory):
        machine = read_machine(directory)
        progress.print(f"measuring in {directory}: {machine.filesystem} on {machine.device}", highlight=False)
        with progress.status("starting") as status:
            bench = Bench(directory, scale, status.update, not no_peers)
            try:
                with open_brokers(bench, starts=starts, quick_compiler=quick) as brokers:
                    rows = []
                    for name in [name for name in ROWS if not only or name in only]:
                        rows.append(measure(name, brokers))
                        progress.print(f"{name}: {rows[-1].failure or 'done'}", highlight=False, markup=False)
            except PeerMissingError as exc:
                raise click.ClickException(f"the benchmark cannot start: {exc}") from exc
    report = Report(datetime.date.today(), machine, describe_scale(scale), rows, NAME, brokers.versions)
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
