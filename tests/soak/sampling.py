"""Figures of a server, every few seconds: memory, descriptors, threads, tasks, segments, bytes on disk, records.

Memory is of the process alone, from `/proc`: `pss` counts shared pages by their part, `private` not at all, `rss` in full.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from tests.soak.server import SoakServer

EVERY_S: Final = 5.0
KIB: Final = 1024
MIB: Final = 1 << 20
ACCOUNT: Final = 'triolog_client_memory_bytes{account="'


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
    accounts: dict[str, int]
    """Bytes that the server keeps for clients, by its own count."""


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
            accounts={
                name.removeprefix(ACCOUNT).removesuffix('"}'): int(value)
                for name, value in told.items()
                if name.startswith(ACCOUNT)
            },
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
