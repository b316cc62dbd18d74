"""What rows answer: samples with their median and spread, what they are compared with, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from enum import Enum

import attrs

from .bench import Scale


class Verdict(Enum):
    """How a measure stands to its target."""

    MET = "met"
    MISSED = "missed"
    NO_TARGET = "-"
    NOT_MEASURED = "not measured"


@attrs.frozen
class Target:
    """What the median is to reach; `text` says it as people say it."""

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
    """One measure: a sample per round, in `unit`. No samples: it could not be taken, and `note` says why."""

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
    """Ours over theirs, round by round: what disturbs the machine disturbs both."""
    return Line(name, "x", [mine / other for mine, other in zip(ours, theirs, strict=True)], target, note)


def absent(name: str, reason: str, target: Target | None = None) -> Line:
    """A measure that cannot be taken here."""
    return Line(name, "", (), target, reason)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(len(ordered) * share * 1_000_000) // 1_000_000) - 1)]


def describe_scale(scale: Scale) -> str:
    return f"{scale.name}: {scale.rounds} rounds after one that is not counted, {scale.share:g} of the full counts"
