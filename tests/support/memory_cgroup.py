"""A control group whose memory has a limit, where this process may create one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path("/sys/fs/cgroup")


@attrs.frozen
class MemoryCgroup:
    """`kind` is `v1`, `v2`, or `none`: then nothing limits whom it is given."""

    kind: str
    path: Path | None = None

    def add(self, pid: int) -> None:
        """A process, and the children that it makes from now on."""
        if self.path is not None:
            (self.path / "cgroup.procs").write_text(str(pid))

    def processes(self) -> list[int]:
        return [] if self.path is None else [int(pid) for pid in (self.path / "cgroup.procs").read_text().split()]

    def peak_bytes(self) -> int:
        """The most memory that was charged, cached files included. Raises FileNotFoundError on a kernel that does not count."""
        assert self.path is not None
        return int((self.path / ("memory.peak" if self.kind == "v2" else "memory.max_usage_in_bytes")).read_text())

    def killed(self) -> int:
        """How many were killed for what they took."""
        if self.path is None:
            return 0
        file = "memory.events" if self.kind == "v2" else "memory.oom_control"
        found = re.search(r"^oom_kill (\d+)$", (self.path / file).read_text(), re.MULTILINE)
        return 0 if found is None else int(found[1])


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[MemoryCgroup]:
    """Everybody in it has to be gone when the block ends."""
    name = f"triolog-test-{os.getpid()}"
    for kind, parent, file in (("v2", _own_v2(), "memory.max"), ("v1", ROOT / "memory", "memory.limit_in_bytes")):
        path = parent / name
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            with (path / file).open("r+") as limit:  # it is there, or this is no memory controller
                limit.write(str(limit_bytes))
        except OSError:
            path.rmdir()
            continue
        try:
            yield MemoryCgroup(kind, path)
        finally:
            path.rmdir()
        return
    yield MemoryCgroup("none")


def _own_v2() -> Path:
    """The group above our own: one with processes hands nothing down."""
    lines = Path("/proc/self/cgroup").read_text().splitlines() if Path("/proc/self/cgroup").exists() else []
    own = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    return (ROOT / own).parent if own else ROOT
