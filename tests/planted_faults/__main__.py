"""`python -m tests.planted_faults [NAME...]`: plant each fault in a copy of the tree and run the tests that have to notice.

Exit code 1 when one is not noticed by every test that is named, or when these tests fail without any fault.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.planted_faults.planting import Copy, Fault, Verdict, read_faults

FAULTS: Final = read_faults()


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--list", "is_list", is_flag=True, help="Say which faults there are and why their lines are risky.")
def main(names: Sequence[str], is_list: bool) -> None:
    """Plant faults NAME... (all of them by default) one at a time and see that the suite notices."""
    if unknown := set(names) - FAULTS.keys():
        raise click.UsageError(f"there is no fault {', '.join(sorted(unknown))}; --list says which there are")
    chosen = {name: FAULTS[name] for name in names or FAULTS}
    console = Console()
    if is_list:
        for name, fault in chosen.items():
            console.print(f"[bold]{name}[/bold] {fault.file}\n    {fault.why}", highlight=False)
        return
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Copy.make(Path(folder))
        verdicts = _run_all(copy, chosen, Console(stderr=True))
    console.print(_table(verdicts))
    missed = [name for name, verdict in verdicts.items() if verdict.passed]
    if missed:
        console.print(f"not noticed: {', '.join(missed)}", style="bold red")
        sys.exit(1)
    console.print(f"all {len(chosen)} noticed")


def _run_all(copy: Copy, chosen: Mapping[str, Fault], console: Console) -> dict[str, Verdict]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    verdicts = {}
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("without a fault", total=len(chosen) + 1)
        _check_whole(copy, chosen)
        for name, fault in chosen.items():
            progress.update(task, advance=1, description=name)
            with copy.planted(fault):
                verdicts[name] = copy.run(fault.tests)
        progress.update(task, advance=1)
    return verdicts


def _check_whole(copy: Copy, chosen: Mapping[str, Fault]) -> None:
    """The tests pass without a fault, else their failure says nothing."""
    verdict = copy.run(list(dict.fromkeys(test for fault in chosen.values() for test in fault.tests)))
    if verdict.failed:
        raise click.ClickException(f"without any fault these fail: {', '.join(verdict.failed)}\n{verdict.output}")


def _table(verdicts: Mapping[str, Verdict]) -> Table:
    table = Table()
    table.add_column("fault", overflow="fold")
    table.add_column("caught by", overflow="fold")
    table.add_column("seconds", justify="right")
    for name, verdict in verdicts.items():
        lines = [escape(_short(test)) for test in verdict.failed]
        lines += [f"[bold red]not by {escape(_short(test))}[/bold red]" for test in verdict.passed]
        table.add_row(name, "\n".join(lines), f"{verdict.seconds:.1f}")
    return table


def _short(test: str) -> str:
    return test.rpartition("::")[2]


if __name__ == "__main__":
    main()
