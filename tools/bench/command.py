"""`triolog bench`: measure, compare with other servers and bare loops in the same run, and print the table."""

from __future__ import annotations

import click

from .options import Wanted, list_rows, measuring, no_peers


@click.command
@measuring(only="Name or number of a row; may be repeated.")
@no_peers(help="Leave Redis and NATS out.")
@list_rows
def command(wanted: Wanted, no_peers: bool, list_rows: bool) -> None:
    """Measure this machine: every row with its target, ratios to peers measured in turn in the same run.

    Peers come from the Debian packages redis-server and nats-server (nats.go needs Go); without them the row says so. All
    files lie in a temporary directory, by default on a disk, never in memory. Exit code 1 when a row could not be measured;
    a missed target is a figure, not an error.
    """
    from .measuring.scale import FULL, QUICK
    from .table import BENCHMARK, ROWS, resolve

    if list_rows:
        for number, name in enumerate(ROWS, 1):
            click.echo(f"{number} {name}")
        return
    try:
        chosen = sorted({resolve(name) for name in wanted.only} or ROWS, key=list(ROWS).index)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--only") from exc
    BENCHMARK.run(wanted, chosen, QUICK if wanted.quick else FULL, with_peers=not no_peers)
