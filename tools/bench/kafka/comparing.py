"""Samples of the brokers taken in turn, and the lines that compare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..measuring.measure import Line, Target, absent, ratio
from .brokers import KAFKA, KFAKE, TRIOLOG, Broker, Brokers

Answers = Mapping[str, Sequence[Mapping[str, Any]]]
"""By broker, what the generator measured in each round."""


def in_turn(brokers: Brokers, measure: Callable[[Broker], Mapping[str, Any]], *, without: Sequence[str] = ()) -> Answers:
    """Measure every broker in every round, after one that is not counted."""

    def of(broker: Broker) -> Callable[[], Mapping[str, Any]]:
        return lambda: measure(broker)

    measures = {name: of(broker) for name, broker in brokers.running.items() if name not in without}
    return brokers.bench.interleave(measures)


def figures(answers: Answers, name: str, key: str, scale: float = 1.0) -> list[float]:
    """Return one figure of a broker by round; an empty list without that broker."""
    return [answer[key] * scale for answer in answers.get(name, ())]


def compared(
    brokers: Brokers,
    answers: Answers,
    what: str,
    key: str,
    unit: str,
    *,
    scale: float = 1.0,
    over_kafka: Target | None = None,
    over_kfake: Target | None = None,
) -> list[Line]:
    """Return the lines of a figure of each broker, and of triolog's over those of the others."""
    lines = []
    for name in (TRIOLOG, KAFKA, KFAKE):
        if samples := figures(answers, name, key, scale):
            lines.append(Line(f"{what}, {name}", unit, samples))
    ours = figures(answers, TRIOLOG, key)
    for name, target in ((KAFKA, over_kafka), (KFAKE, over_kfake)):
        label = f"{what}, {TRIOLOG} / {name}"
        if theirs := figures(answers, name, key):
            lines.append(ratio(label, ours, theirs, target))
        elif name in brokers.missing and (target is not None or name == KAFKA):
            lines.append(absent(label, brokers.missing[name], target))
    return lines
