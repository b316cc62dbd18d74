"""Runs any benchmark: creates a directory, describes the machine, measures row after row, and writes the report."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import Final, Generic, TypeVar

import attrs
import click
from rich.console import Console

from .measuring.bench import Bench, Scale
from .measuring.machine import read_machine
from .measuring.report import Report, RowResult, describe_scale
from .options import Wanted

MAX_FAILURE_CHARS: Final = 500

Where = TypeVar("Where")


@attrs.frozen(kw_only=True)
class Benchmark(Generic[Where]):
    """The definition of a benchmark: its rows by the names that `--only` accepts, in their order, and their place."""

    rows: Mapping[str, Callable[[Where], RowResult]]
    row_failures: tuple[type[Exception], ...]
    """What keeps one row from its end while the others go on."""
    open_place: Callable[[Bench], AbstractContextManager[Where]]
    place_failures: tuple[type[Exception], ...] = ()
    """What ends the run with one line."""
    warm_up: Callable[[Where, Sequence[str]], None] = lambda place, chosen: None
    """Done with the chosen rows before anything counts."""
    versions_of: Callable[[Where], Sequence[str]] = lambda place: ()
    """Of what is measured beside triolog."""

    def measure(self, row: str, place: Where) -> RowResult:
        """Measure one row. An error that ends it is in its `failure`."""
        try:
            return self.rows[row](place)
        except self.row_failures as exc:
            failure = f"{type(exc).__name__}: {exc}"[:MAX_FAILURE_CHARS]
            return RowResult(row, (), failure=failure)

    def run(self, wanted: Wanted, chosen: Sequence[str], scale: Scale, *, with_peers: bool = True) -> None:
        """Measure the chosen rows and conclude. Raises ClickException where the place cannot be opened."""
        progress = Console(stderr=True)
        with _terminable(), wanted.directory() as directory, _compiled(directory):
            machine = read_machine(directory)
            progress.print(f"measuring in {directory}: {machine.filesystem} on {machine.device}", highlight=False)
            rows: list[RowResult] = []
            current = ""
            with progress.status("starting") as status:
                bench = Bench(directory, scale, lambda text: status.update(f"{current}{text}"), with_peers)
                try:
                    with self.open_place(bench) as place:
                        self.warm_up(place, chosen)
                        for row in chosen:
                            current = f"{row}: "
                            rows.append(self.measure(row, place))
                            progress.print(f"{row}: {rows[-1].failure or 'done'}", highlight=False, markup=False)
                        versions = self.versions_of(place)
                except self.place_failures as exc:
                    raise click.ClickException(f"the benchmark cannot start: {exc}") from exc
        wanted.conclude(Report(datetime.date.today(), machine, describe_scale(scale), rows, wanted.name, versions), progress)


@contextlib.contextmanager
def _compiled(directory: str) -> Iterator[None]:
    """Let processes find compiled modules, as those of an installation do: where nobody may write them, in `directory`."""
    if not sys.dont_write_bytecode:
        yield
        return
    before = os.environ.copy()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = f"{directory}/bytecode"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the run as an interrupt does: servers are stopped and files removed."""

    def end(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
