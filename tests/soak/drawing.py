"""The picture of a soak: curves of what the server held, and of who held its memory, over the hours of all its lives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.soak.owners import Holding
from tests.soak.sampling import MIB, Sample

Points = list[tuple[float, float]]
"""Hours since the run began, and the value."""
PANELS: Final[tuple[tuple[str, Mapping[str, Callable[[Sample], float]]], ...]] = (
    (
        "memory, MiB",
        {
            "rss": lambda each: each.rss / MIB,
            "pss": lambda each: each.pss / MIB,
            "private": lambda each: each.private / MIB,
        },
    ),
    ("descriptors", {"descriptors": lambda each: each.descriptors}),
    ("threads, tasks", {"threads": lambda each: each.threads, "tasks": lambda each: each.tasks}),
    ("segments", {"segments": lambda each: each.segments}),
    ("on disk, MiB", {"on disk": lambda each: each.disk_bytes / MIB}),
)
HELD: Final = ("anonymous", "python held", "python used", "c held", "c used", "logs", "programs")
"""Owners of memory with a curve, of `Holding.held`."""


def draw(samples: Sequence[Sample], holdings: Mapping[int, Sequence[Holding]], title: str, path: Path) -> None:
    """Write the picture. `holdings`: by the number of the life."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    lives = [list(group) for _, group in itertools.groupby(samples, key=lambda each: each.life)]
    panels = [
        *((label, {name: _curves(lives, value) for name, value in curves.items()}) for label, curves in PANELS),
        ("records a second", {"records": [rates(life) for life in lives]}),
        ("by owner, MiB", {name: list(_held(lives, holdings, name)) for name in HELD}),
    ]
    figure = Figure(figsize=(10, 13), layout="constrained")
    FigureCanvasSVG(figure)
    all_axes = figure.subplots(len(panels), 1, sharex=True)
    for axes, (label, curves) in zip(all_axes, panels, strict=True):
        _draw_panel(axes, label, curves)
        for life in lives[1:]:
            axes.axvline(life[0].at_s / 3600, color="0.6", linewidth=0.8, linestyle=":")
    all_axes[0].set_title(title)
    all_axes[-1].set_xlabel("hours; dotted: the server was killed or stopped, and started again")
    with rc_context({"svg.hashsalt": "soak", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})


def rates(samples: Sequence[Sample]) -> Points:
    """Records a second between samples of one life."""
    pairs = ((a, b) for a, b in itertools.pairwise(samples) if a.life == b.life and b.at_s > a.at_s)
    return [(b.at_s / 3600, (b.records - a.records) / (b.at_s - a.at_s)) for a, b in pairs]


def _curves(lives: Sequence[Sequence[Sample]], value: Callable[[Sample], float]) -> list[Points]:
    return [[(each.at_s / 3600, value(each)) for each in life] for life in lives]


def _held(lives: Sequence[Sequence[Sample]], holdings: Mapping[int, Sequence[Holding]], name: str) -> Iterator[Points]:
    for life in lives:
        began_s = life[0].at_s - life[0].age_s
        told = [each for each in holdings.get(life[0].life, ()) if name in each.held]
        yield [((began_s + each.age_s) / 3600, each.held[name] / MIB) for each in told]


def _draw_panel(axes: Any, label: str, curves: Mapping[str, Sequence[Points]]) -> None:
    """Each curve in as many pieces as there were lives."""
    for number, (name, lives) in enumerate(curves.items()):
        for piece, points in enumerate(lives):
            shown = name if piece == 0 and len(curves) > 1 else None
            axes.plot([x for x, _ in points], [y for _, y in points], color=f"C{number}", linewidth=1, label=shown)
    if len(curves) > 1:
        axes.legend(frameon=False, loc="upper left", ncols=len(curves))
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
