"""Results of rows: samples with their median and spread, their target and the verdict. And the report of a run as a page, as
JSON, and in files with the machine beside them.
"""

from __future__ import annotations

import datetime
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from .bench import Scale
from .curves import Curve, growth_picture
from .machine import Machine


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

    def to_markdown(self, pictures: Mapping[str, str] = MappingProxyType({})) -> str:
        """Return the table as a page. `pictures`: files beside it, by the title of their row."""
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
            if row.title in pictures:
                parts += [f"![{row.title}]({pictures[row.title]})", ""]
        return "\n".join(parts).rstrip() + "\n"

    def save(self, directory: Path) -> list[Path]:
        """Write `<date>.json` and `<date>.md`, or `<date>-<name>`, and a picture for each row with curves. A second run of
        the same day replaces the first one's."""
        directory.mkdir(parents=True, exist_ok=True)
        stem = "-".join(filter(None, (self.date.isoformat(), self.name)))
        drawn = {row.title: row for row in self.rows if row.curves}
        pictures = {title: f"{stem}-{re.sub('[^a-z]+', '-', title.lower())}.svg" for title in drawn}
        files = {f"{stem}.json": json.dumps(self.to_json(), indent=1) + "\n", f"{stem}.md": self.to_markdown(pictures)}
        files |= {file: growth_picture(title, drawn[title].curves) for title, file in pictures.items()}
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


class Verdict(Enum):
    """The result of comparing a measure with its target."""

    MET = "met"
    MISSED = "missed"
    NO_TARGET = "-"
    NOT_MEASURED = "not measured"


@attrs.frozen
class Target:
    """The bound for a median; `text` is its form for people."""

    bound: float
    text: str
    is_upper: bool

    def verdict(self, value: float) -> Verdict:
        reached = value <= self.bound if self.is_upper else value >= self.bound
        return Verdict.MET if reached else Verdict.MISSED


def at_most(bound: float, unit: str) -> Target:
    return Target(bound, f"<= {bound:g} {unit}", True)


def at_least(bound: float, unit: str) -> Target:
    return Target(bound, f">= {bound:g} {unit}", False)


@attrs.frozen
class Line:
    """A measure: a sample per round, in `unit`. Without samples the measurement was impossible, and `note` says why."""

    name: str
    unit: str
    samples: Sequence[float]
    target: Target | None = None
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def verdict(self) -> Verdict:
        if not self.samples:
            return Verdict.NOT_MEASURED
        return Verdict.NO_TARGET if self.target is None else self.target.verdict(self.median)


@attrs.frozen
class RowResult:
    """A row of the table: its lines, and what a reader must know to judge them."""

    title: str
    lines: Sequence[Line]
    notes: Sequence[str] = ()
    failure: str = ""
    curves: Sequence[Curve] = ()
    """Drawn in one picture, where the report is kept."""


def ratio(name: str, ours: Sequence[float], theirs: Sequence[float], target: Target | None = None, note: str = "") -> Line:
    """Return ours over theirs, round by round: a disturbance of the machine disturbs both."""
    return Line(name, "x", [mine / other for mine, other in zip(ours, theirs, strict=True)], target, note)


def absent(name: str, reason: str, target: Target | None = None) -> Line:
    """Return a line for a measure that cannot be taken here."""
    return Line(name, "", (), target, reason)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(len(ordered) * share * 1_000_000) // 1_000_000) - 1)]


def describe_scale(scale: Scale) -> str:
    return f"{scale.name}: {scale.rounds} rounds after one that is not counted, {scale.share:g} of the full counts"
