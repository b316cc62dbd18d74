"""The curves of a soak as one SVG: each quantity over the hours, restarts of the server as vertical lines."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from .sampling import Sample

MIB: Final = 1 << 20
Panel = tuple[str, tuple[tuple[str, Callable[[Sample], float]], ...]]
PANELS: Final[tuple[Panel, ...]] = (
    (
        "memory, MiB",
        (
            ("rss", lambda each: each.rss / MIB),
            ("pss", lambda each: each.pss / MIB),
            ("private", lambda each: each.private / MIB),
        ),
    ),
    ("descriptors", (("descriptors", lambda each: each.descriptors),)),
    ("threads, tasks", (("threads", lambda each: each.threads), ("tasks", lambda each: each.tasks))),
    ("segments", (("segments", lambda each: each.segments),)),
    ("on disk, MiB", (("on disk", lambda each: each.disk_bytes / MIB),)),
)


def rates(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Records a second between samples of one life, by hours."""
    pairs = ((a, b) for a, b in itertools.pairwise(samples) if a.life == b.life and b.at_s > a.at_s)
    return [(b.at_s / 3600, (b.records - a.records) / (b.at_s - a.at_s)) for a, b in pairs]


def draw(samples: Sequence[Sample], title: str, path: Path) -> None:
    """Write the picture."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 11), layout="constrained")
    FigureCanvasSVG(figure)
    all_axes = figure.subplots(len(PANELS) + 1, 1, sharex=True)
    restarts = [b.at_s / 3600 for a, b in itertools.pairwise(samples) if a.life != b.life]
    lives = [list(group) for _, group in itertools.groupby(samples, key=lambda each: each.life)]
    for axes, (label, curves) in zip(all_axes, PANELS, strict=False):
        axes.set_ylabel(label)
        for number, (name, value) in enumerate(curves):
            for life in lives:
                hours = [each.at_s / 3600 for each in life]
                shown = name if life is lives[0] and len(curves) > 1 else None
                axes.plot(hours, [value(each) for each in life], color=f"C{number}", linewidth=1, label=shown)
        if len(curves) > 1:
            axes.legend(frameon=False, loc="upper left", ncols=len(curves))
        axes.set_ylim(bottom=0)
    last = all_axes[-1]
    found = rates(samples)
    last.plot([hour for hour, _ in found], [rate for _, rate in found], color="C0", linewidth=0.6)
    last.set_ylabel("records a second")
    last.set_ylim(bottom=0)
    last.set_xlabel("hours; dotted: the server was killed or stopped, and started again")
    for axes in all_axes:
        for hour in restarts:
            axes.axvline(hour, color="0.6", linewidth=0.8, linestyle=":")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    all_axes[0].set_title(title)
    with rc_context({"svg.hashsalt": "soak", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
