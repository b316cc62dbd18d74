"""What a server holds, every few seconds: memory, descriptors, threads, tasks, segments, bytes on disk, records; its curves.

Memory is of the process alone, from `/proc`: `pss` counts shared pages by their part, `private` not at all, `rss` in full.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.soak.server import SoakServer

EVERY_S: Final = 5.0
KIB: Final = 1024


@attrs.frozen(kw_only=True)
class Sample:
    """`at_s`: since the run began. `life`: how many servers there were before; `age_s`: since this one served."""

    at_s: float
    life: int
    age_s: float
    rss: int
    pss: int
    private: int
    descriptors: int
    threads: int
    children: int
    """Processes that compact or scrub."""
    tasks: int
    segments: int
    disk_bytes: int
    records: int
    """That were ever appended to the topics of the run, markers too."""
    cpu_s: float


@attrs.define(eq=False)
class Sampler:
    """Owner of the samples of a run, which are kept in a file as they are taken."""

    path: Path
    server: SoakServer
    _began: float = attrs.field(factory=time.monotonic)
    _next: float = 0.0

    def turn(self) -> None:
        """Take one when it is time. A server that has just gone has none."""
        if (now := time.monotonic()) < self._next:
            return
        self._next = now + EVERY_S
        try:
            sample = self._take(now)
        except (FileNotFoundError, ProcessLookupError):
            return
        if sample is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(attrs.asdict(sample)) + "\n")

    def _take(self, now: float) -> Sample | None:
        pid = self.server.process.pid
        memory = memory_of(pid)
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        status = fields_of(Path(f"/proc/{pid}/status"))
        told = dict(values_of(self.server.metrics()))
        if not told:
            return None
        ends = sum(value for name, value in told.items() if name.startswith("triolog_log_end_offset{") and "__" not in name)
        return Sample(
            at_s=round(now - self._began, 1),
            life=self.server.lives - 1,
            age_s=round(now - self.server.began_at, 1),
            rss=memory["Rss"],
            pss=memory["Pss"],
            private=memory["Private_Clean"] + memory["Private_Dirty"],
            descriptors=descriptors,
            threads=int(status["Threads"]),
            children=len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()),
            tasks=int(told["triolog_tasks"]),
            segments=int(sum(value for name, value in told.items() if name.startswith("triolog_segments{"))),
            disk_bytes=disk_bytes(self.server.data_dir),
            records=int(ends),
            cpu_s=told.get("process_cpu_seconds_total", 0.0),
        )


def load_samples(path: Path) -> list[Sample]:
    return [Sample(**json.loads(line)) for line in path.read_text().splitlines()]


def memory_of(pid: int) -> dict[str, int]:
    """Bytes, by the names of `smaps_rollup`."""
    told = fields_of(Path(f"/proc/{pid}/smaps_rollup"))
    return {name: int(value.split()[0]) * KIB for name, value in told.items() if value.endswith("kB")}


def fields_of(path: Path) -> dict[str, str]:
    pairs = (line.partition(":") for line in path.read_text().splitlines())
    return {name: value.strip() for name, _, value in pairs}


def values_of(metrics: str) -> Iterator[tuple[str, float]]:
    """Each series with its labels, as text."""
    for line in metrics.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            yield name, float(value)


def disk_bytes(folder: Path) -> int:
    """What the files of a folder take up of the disk; those that go meanwhile count nothing."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name), follow_symlinks=False).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


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
