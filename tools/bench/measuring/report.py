"""A run's results: as a table for people, as JSON for programs, and kept in files with the machine beside them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import attrs
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .machine import Machine
from .measure import Line, RowResult, Verdict

COLOURS: Final = {Verdict.MET: "green", Verdict.MISSED: "red", Verdict.NO_TARGET: "dim", Verdict.NOT_MEASURED: "yellow"}
JUSTIFIED: Final[Sequence[Literal["left", "right"]]] = ("right", "right", "left", "left")


@attrs.frozen
class Report:
    """One run."""

    date: datetime.date
    machine: Machine
    scale: str
    rows: Sequence[RowResult]
    name: str = ""
    """Of the benchmark, behind the date in the files' names; none for that of the server."""
    versions: Sequence[str] = ()
    """Of what was measured beside triolog, and with what settings."""

    @property
    def has_failures(self) -> bool:
        """Whether a row could not be measured to its end; a missed target is a figure, not a failure."""
        return any(row.failure for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """All samples, with what is derived from them."""
        return {
            "date": self.date.isoformat(),
            "machine": attrs.asdict(self.machine),
            "scale": self.scale,
            "versions": list(self.versions),
            "rows": [_row_to_json(row) for row in self.rows],
        }

    def to_markdown(self) -> str:
        """The table as a page."""
        parts = [f"# Benchmark of {self.date.isoformat()}", "", f"Machine: {self.machine}.", f"Scale: {self.scale}.", ""]
        parts += [*(f"- {version}" for version in self.versions), ""] if self.versions else []
        parts += ["Medians over rounds; spread is the least and the largest sample. Ratios are taken round by round.", ""]
        for row in self.rows:
            parts += [f"## {row.title}", ""]
            if row.failure:
                parts += [f"Not measured to the end: {row.failure}", ""]
            if row.lines:
                parts += ["| what | median | spread | target | verdict | note |", "|---|---:|---:|---|---|---|"]
                parts += [f"| {' | '.join(_cells(line))} |" for line in row.lines]
                parts += [""]
            parts += [f"- {note}" for note in row.notes] + ([""] if row.notes else [])
        return "\n".join(parts).rstrip() + "\n"

    def save(self, directory: Path) -> list[Path]:
        """Write `<date>.json` and `<date>.md`, or `<date>-<name>`; a second run of the same day replaces the first one's."""
        directory.mkdir(parents=True, exist_ok=True)
        stem = "-".join(filter(None, (self.date.isoformat(), self.name)))
        files = {f"{stem}.json": json.dumps(self.to_json(), indent=1) + "\n", f"{stem}.md": self.to_markdown()}
        paths = []
        for name, content in files.items():
            path = directory / name
            path.write_text(content, encoding="utf-8")
            paths.append(path)
        return paths

    def print(self, console: Console) -> None:
        """A table for each row, all of the same widths as far as the terminal has room."""
        console.print(f"[bold]Machine[/]: {escape(str(self.machine))}", highlight=False)
        console.print(f"[bold]Scale[/]: {escape(self.scale)}", highlight=False)
        for version in self.versions:
            console.print(f"[dim]{escape(version)}[/]", highlight=False)
        widths = self._widths()
        for row in self.rows:
            console.print(f"\n[bold]{escape(row.title)}[/]", highlight=False)
            if row.failure:
                console.print(f"  [red]not measured to the end: {escape(row.failure)}[/]", highlight=False)
            table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
            table.add_column(min_width=min(widths[0], console.width - sum(widths[1:]) - 2 * len(widths)), overflow="fold")
            for column, width in enumerate(widths[1:]):
                table.add_column(min_width=width, justify=JUSTIFIED[column], no_wrap=True)
            for line in row.lines:
                name, median, spread, target, verdict, note = map(escape, _cells(line))
                shown = f"[{COLOURS[line.verdict]}]{verdict}[/]"
                table.add_row(f"  {name}" + (f"\n    [dim]{note}[/]" if note else ""), median, spread, target, shown)
            console.print(table)
            for note in row.notes:
                console.print(f"  [dim]{escape(note)}[/]", highlight=False)

    def _widths(self) -> list[int]:
        cells = [_cells(line)[:5] for row in self.rows for line in row.lines]
        return [max((len(each[column]) for each in cells), default=0) + 2 * (column == 0) for column in range(5)]


def _cells(line: Line) -> tuple[str, str, str, str, str, str]:
    target = "" if line.target is None else line.target.text
    if not line.samples:
        return line.name, "", "", target, line.verdict.value, line.note
    spread = "" if len(line.samples) == 1 else f"{_number(min(line.samples))} .. {_number(max(line.samples))}"
    return line.name, f"{_number(line.median)} {line.unit}", spread, target, line.verdict.value, line.note


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _row_to_json(row: RowResult) -> dict[str, Any]:
    return {
        "title": row.title,
        "failure": row.failure or None,
        "notes": list(row.notes),
        "lines": [
            {
                "name": line.name,
                "unit": line.unit,
                "samples": list(line.samples),
                "median": line.median if line.samples else None,
                "target": None if line.target is None else line.target.text,
                "verdict": line.verdict.value,
                "note": line.note or None,
            }
            for line in row.lines
        ],
    }
