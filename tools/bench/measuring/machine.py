"""Describes the measured machine: a line for the report, and the file system below the data."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import attrs

IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
SYNCS: Final = 500


@attrs.frozen
class Machine:
    """The machine line's facts."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    filesystem: str
    device: str
    sync_p50_ms: float
    load_average: float

    def __str__(self) -> str:
        return (
            f"{self.cpu}, {self.cores} cores, {self.memory_gib:.0f} GiB, Linux {self.kernel}, Python {self.python}, "
            f"{self.filesystem} on {self.device}, fdatasync after 200 B p50 {self.sync_p50_ms:.3f} ms, "
            f"load {self.load_average:.1f} at the start"
        )


def usable_cores() -> int:
    """Return the number of cores that this process may use, where the system says it, else of all."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_machine(directory: str, *, syncs: int = SYNCS) -> Machine:
    """Describe the machine, and the disk below `directory`."""
    filesystem, device = filesystem_of(directory)
    times = sync_times_s(directory, count=syncs)
    return Machine(
        cpu=_first_value("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        cores=usable_cores(),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        kernel=platform.release(),
        python=platform.python_version(),
        filesystem=filesystem,
        device=device,
        sync_p50_ms=statistics.median(times) * 1000,
        load_average=os.getloadavg()[0],
    )


def default_parent() -> str:
    """Return a directory for temporary files on a disk: the system's, else /var/tmp, else the current one."""
    for candidate in (tempfile.gettempdir(), "/var/tmp"):
        if os.access(candidate, os.W_OK) and filesystem_of(candidate)[0] not in IN_MEMORY:
            return candidate
    return str(Path.cwd())


def filesystem_of(path: str) -> tuple[str, str]:
    """Return type and device of the file system of `path`; ("unknown", "unknown") where the system does not say."""
    mounts = Path("/proc/self/mountinfo")
    if not mounts.exists():
        return "unknown", "unknown"
    real = os.path.realpath(path)
    best, answer = "", ("unknown", "unknown")
    for line in mounts.read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].replace("\\040", " ")
        kind, device = after.split()[:2]
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, answer = point, (kind, device)
    return answer


def _first_value(path: str, key: str) -> str:
    if Path(path).exists():
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    return ""


RECORD: bytes = bytes(200)


def sync_times_s(directory: str, *, count: int) -> list[float]:
    """Return how long each `fdatasync` took after an append of 200 bytes to a temporary file."""
    sync = getattr(os, "fdatasync", os.fsync)
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        fd = file.fileno()
        for number in range(count):
            os.pwrite(fd, RECORD, number * len(RECORD))
            started = time.perf_counter()
            sync(fd)
            times.append(time.perf_counter() - started)
    return times


def sync_rate(*, directory: str, count: int) -> dict[str, float]:
    """Return the appends of 200 bytes per second, each followed by its `fdatasync`."""
    started = time.perf_counter()
    sync_times_s(directory, count=count)
    return {"rate": count / (time.perf_counter() - started)}
