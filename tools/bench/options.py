"""The options and exit codes that all benchmark commands share; each command owns its measurements.

The command line loads this module, so it imports nothing that measures or draws.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

if TYPE_CHECKING:
    from rich.console import Console

    from .measuring.report import Report

SAVED_IN: Final = "docs/benchmarks"
EXIT_ROW_FAILED: Final = 1
A_TENTH: Final = "A tenth of the counts: shows that it works, not how fast it is."

Decorator = Callable[[Callable[..., None]], Callable[..., None]]

rounds: Final = click.option(
    "--rounds", type=click.IntRange(min=1), help="Samples of each measure, instead of the scale's number."
)
list_rows: Final = click.option("--list", "list_rows", is_flag=True, help="List the rows and stop.")


@attrs.frozen
class Wanted:
    """The options of a benchmark."""

    name: str
    """Of the benchmark, in the names of the files that are kept; none for that of the server."""
    only: tuple[str, ...]
    quick: bool
    as_json: bool
    save: bool
    save_in: str
    parent: str | None

    def rows_of(self, rows: Collection[str]) -> list[str]:
        """Return the names of the rows to measure, in their order."""
        if unknown := [name for name in self.only if name not in rows]:
            raise click.BadParameter(f"there is no row {unknown[0]!r}. Rows: {', '.join(rows)}", param_hint="--only")
        return [name for name in rows if not self.only or name in self.only]

    def directory(self) -> tempfile.TemporaryDirectory[str]:
        """Create a temporary directory where the user says, by default on a disk, never in memory."""
        from .measuring.machine import default_parent

        return tempfile.TemporaryDirectory(prefix="triolog-bench-", dir=self.parent or default_parent())

    def conclude(self, report: Report, progress: Console) -> None:
        """Print the report and keep it where that was asked for. Ends the program when a row could not be measured."""
        click.echo(json.dumps(report.to_json(), indent=1) if self.as_json else report.to_markdown())
        if self.save:
            for path in report.save(Path(self.save_in)):
                progress.print(f"kept in {path}", highlight=False)
        if report.has_failures:
            sys.exit(EXIT_ROW_FAILED)


def measuring(*, only: str = "Name of a row (repeatable).", quick: str = A_TENTH, name: str = "") -> Decorator:
    """Give a command the options of all benchmarks; it gets them as its first argument. `name` as in `Wanted`."""
    kept = f"{SAVED_IN}/<date>{f'-{name}' if name else ''}.json"
    options = (
        click.option("--only", multiple=True, metavar="ROW", help=only),
        click.option("--quick", is_flag=True, help=quick),
        click.option("--json", "as_json", is_flag=True, help="Print all samples as JSON."),
        click.option("--save", is_flag=True, help=f"Save the figures in {kept} and .md."),
        click.option(
            "--save-in", type=click.Path(file_okay=False), default=SAVED_IN, show_default=True, help="Folder for --save."
        ),
        click.option(
            "--dir", "parent", type=click.Path(exists=True, file_okay=False), help="A directory on the disk to measure."
        ),
    )

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def told(**given: Any) -> None:
            options = {field.name: given.pop(field.name) for field in attrs.fields(Wanted) if field.name in given}
            wanted = Wanted(name=name, **options)
            function(wanted, **given)

        return functools.reduce(lambda command, option: option(command), reversed(options), told)

    return decorate
