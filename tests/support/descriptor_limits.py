"""Server processes at their limit of open files, and what they look for in the module path meanwhile.

The soft limit of a running process can be lowered to the lowest descriptor that it has free: whatever it opens from then on
fails with EMFILE, until the limit is raised again.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.server_process import ServerProcess

TELLS_IMPORTS: Final = """
import os, sys
class Told:
    file = os.open("imports", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    def find_spec(self, name, path=None, target=None):
        os.write(self.file, (name + chr(10)).encode())
sys.meta_path.insert(0, Told())
"""
"""Runs before the command. Whoever imports what is not loaded asks the finders, whether it is found or not."""


def lowest_free(pid: int) -> int:
    """The number that the next descriptor of a process will have."""
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return next(number for number in range(len(used) + 1) if number not in used)


def exhaust(server: ServerProcess) -> None:
    """Let it open nothing more; what is open stays so."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (lowest_free(server.pid), hard))


def relieve(server: ServerProcess) -> None:
    """Let it open what it may have."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (hard, hard))


def limited_to(count: int) -> str:
    """For a command's prelude."""
    return f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({count}, {count}))"


def imports_of(folder: Path) -> list[str]:
    """The modules that servers in a folder have looked for until now; the command is to run `TELLS_IMPORTS`."""
    return (folder / "imports").read_text().split()


@contextmanager
def process_as_it_was() -> Iterator[None]:
    """The log and the answer to SIGHUP are as before when the block is left."""
    root = logging.getLogger()
    handlers, level, on_hangup = root.handlers[:], root.level, signal.getsignal(signal.SIGHUP)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        signal.signal(signal.SIGHUP, on_hangup)
