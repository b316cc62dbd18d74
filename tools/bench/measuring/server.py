"""A real `triolog serve` in a process of its own, and what the kernel says of its memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs

from ....server.config.broker_settings import VARIABLE_PREFIX
from ...demo.processes import Process, serve_arguments
from .child import LoadFailedError
from .process import children, memory_mib


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
    directory: str, *, durability: str = "os", settings: Mapping[str, int] | None = None, kafka: bool = False
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
