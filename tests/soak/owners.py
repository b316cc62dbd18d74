"""Who holds a server's memory: what `watched_server.py` noted in each life, as a table of growth."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.soak.sampling import MIB, Sample

WINDOW_S: Final = 300.0
"""A level is the median of so many seconds."""
MOST: Final = 12


@attrs.frozen(kw_only=True)
class Holding:
    """What one life held at one moment, in bytes by owner, and how many objects of which class there were.

    `held`: of the pages, `anonymous`, `logs` and `programs`; `c held`, `c used` and `c free` of the C library's malloc; `python
    held` and `python used` of the arenas for small objects. `traced`: by folder, where the run traced.
    """

    age_s: float
    held: Mapping[str, int]
    objects: Mapping[str, int]
    traced: Mapping[str, int] = attrs.field(factory=dict)


def load_holdings(folder: Path) -> dict[int, list[Holding]]:
    """By the number of the life, from 0. A line that a kill cut off is left out."""
    return {int(path.stem.removeprefix("memory-")): list(_holdings(path)) for path in folder.glob("memory-*.txt")}


def _holdings(path: Path) -> Iterator[Holding]:
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield Holding(**json.loads(line))


def growth(holdings: Sequence[Holding], samples: Sequence[Sample], from_s: float) -> list[str]:
    """What each owner of one life held in the `WINDOW_S` from `from_s` on, and in the last; the most growth first."""
    series = {
        **_series("held", ((each.age_s, each.held) for each in holdings)),
        **_series("kept for clients", ((each.age_s, each.accounts) for each in samples)),
        **_series("allocated by", ((each.age_s, each.traced) for each in holdings)),
        **_series("objects", ((each.age_s, each.objects) for each in holdings)),
    }
    rows = [row for name, points in series.items() if (row := _row(name, points, from_s)) is not None]
    kinds = itertools.groupby(rows, key=lambda row: row[0].partition(": ")[0])
    lines = []
    for kind, group in kinds:
        most = sorted(group, key=lambda row: row[2] - row[1], reverse=True)[:MOST]
        unit, digits, name = (1, 0, "") if kind == "objects" else (MIB, 2, " MiB")
        lines += [
            f"{what}: {a / unit:,.{digits}f} -> {b / unit:,.{digits}f}{name}, {(b - a) / unit:+,.{digits}f}"
            for what, a, b in most
            if a != b
        ]
    return lines


def _series(kind: str, told: Iterator[tuple[float, Mapping[str, int]]]) -> dict[str, list[tuple[float, int]]]:
    found: dict[str, list[tuple[float, int]]] = {}
    for age_s, values in told:
        for name, value in values.items():
            found.setdefault(f"{kind}: {name}", []).append((age_s, value))
    return found


def _row(name: str, points: Sequence[tuple[float, int]], from_s: float) -> tuple[str, float, float] | None:
    """Nothing where there is no value at one end."""
    first = [value for age_s, value in points if from_s <= age_s < from_s + WINDOW_S]
    last = [value for age_s, value in points if age_s > max(points[-1][0] - WINDOW_S, from_s + WINDOW_S)]
    return (name, statistics.median(first), statistics.median(last)) if first and last else None
