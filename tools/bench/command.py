"""`triolog bench`: measure, compare with bare loops in the same run, and print the table."""

from __future__ import annotations

import click

from .options import Wanted, list_rows, measuring


@click.command
@measuring()
@list_rows
def command(wanted: Wanted, list_rows: bool) -> None:
    """Measure this machine: every row with its target, ratios to bare loops measured in turn in the same run.

    All files are in a temporary directory, by default on a disk, never in memory. Exit code 1 when a row could not be measured.
    A missed target is a figure, not an error.
    """
    from .measuring.bench import FULL, QUICK
    from .table import BENCHMARK, ROWS

    if list_rows:
        click.echo("\n".join(ROWS))
        return
    BENCHMARK.run(wanted, wanted.rows_of(ROWS), QUICK if wanted.quick else FULL)
