"""Results of rows: samples with their median and spread, their target, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from enum import Enum

import attrs

from .bench import Scale


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
