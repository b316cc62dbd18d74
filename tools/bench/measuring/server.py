"""A real `triolog serve` in a process of its own, and the kernel's figures for a process: its memory, its CPU time, and the
bytes that it reads and writes (Linux: /proc).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from ....server.config.broker_settings import VARIABLE_PREFIX
from ...demo.processes import Process, serve_arguments
from .child import LoadFailedError


@attrs.define(eq=False, repr=False)
class Server(Process):
    """A running server. `stop` and leaving `serving` end it."""

    @property
    def data(self) -> str:
        """Return its log directory."""
        return f"{self.folder}/data"

    def children(self) -> list[int]:
        """Return its child processes."""
        return children(self.pid)

    def bytes_read(self) -> int:
        """Return the bytes that it has read by system calls, its modules included."""
        return bytes_read(self.pid)

    def idle_memory_mib(self, *, settle_s: float = 2.0) -> dict[str, float]:
        """Return the memory once it has not changed for a quarter of a second, or after `settle_s`."""
        deadline = time.monotonic() + settle_s
        before = memory_mib(self.pid)
        while time.monotonic() < deadline:
            time.sleep(0.25)
            now = memory_mib(self.pid)
            if now["VmRSS"] == before["VmRSS"]:
                return now
            before = now
        return before


@contextmanager
def serving(
    directory: str, *, durability: str = "os", settings: Mapping[str, int | str] | None = None, kafka: bool = False
) -> Iterator[Server]:
    """Run a server on `directory`/data for the time of the block; kill it if it does not stop. `settings` are keys of its own;
    `kafka`: with a listener for Kafka clients, too."""
    options = ("--log-level", "warning", *(("--kafka", "127.0.0.1:0") if kafka else ()))
    arguments = serve_arguments(f"{directory}/data", *options, durability=durability)
    variables = {f"{VARIABLE_PREFIX}{key.upper()}": str(value) for key, value in (settings or {}).items()}
    with Server("triolog serve", Path(directory), arguments, variables) as server:
        server.start()
        yield server
        if server.process is not None and server.process.poll() is None and (status := server.stop()):
            raise LoadFailedError(f"triolog serve ended with {status}")


CLOCK_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
"""What the kernel counts processor time in."""


def memory_mib(pid: int) -> dict[str, float]:
    """Return VmRSS and its parts; VmHWM is the peak since the program was loaded.

    `ru_maxrss` would not do for the peak: it starts with what the parent had when it started the process.
    """
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "RssFile", "VmHWM")}


def shared_out_mib(pid: int) -> float:
    """Return the memory in which pages that several processes share count in parts (PSS)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"process {pid} has no memory figures")


def bytes_read(pid: int) -> int:
    """Return the bytes read by system calls so far; reads through maps do not count."""
    return _io(pid)["rchar"]


def bytes_written(pid: int) -> int:
    """Return the bytes of pages that became dirty: what the file system has to write at least."""
    return _io(pid)["write_bytes"]


def cpu_s(pid: int) -> float:
    """Return the seconds on the processor so far, of all threads, also of a process that has ended and was not waited for."""
    return sum(_stat(pid)[11:13]) * CLOCK_TICK_S


def children(pid: int) -> list[int]:
    """Return the living child processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def _stat(pid: int) -> list[int]:
    """Return the numbers after a process's name in its stat file; the state is 0 here."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return [0, *map(int, fields[1:])]


def _io(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}
