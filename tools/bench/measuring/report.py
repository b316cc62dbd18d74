"""A run's results: as a page for people, as JSON for programs, and kept in files with the machine beside them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from .machine import Machine
from .measure import Line, RowResult


@attrs.frozen
class Report:
    """The report of a run."""

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
        """Return whether a row could not be measured to its end; a missed target is a figure, not a failure."""
        return any(row.failure for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return all samples, and the figures that follow from them."""
        return {
            "date": self.date.isoformat(),
            "machine": attrs.asdict(self.machine),
            "scale": self.scale,
            "versions": list(self.versions),
            "rows": [_row_to_json(row) for row in self.rows],
        }

    def to_markdown(self) -> str:
        """Return the table as a page."""
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
