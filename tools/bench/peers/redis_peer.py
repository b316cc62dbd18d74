"""Redis with an append-only file that is synced before every answer, driven by its own benchmark."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from ..measuring.child import LoadFailedError
from .peer import executable, free_port, program_version, running

DEBIAN_PACKAGE: Final = "redis-server"


@attrs.frozen
class RedisPeer:
    """A running server."""

    port: int
    benchmark: str
    version: str

    def xadd_rate(self, *, connections: int, in_flight: int, requests: int, value_bytes: int) -> float:
        """Entries per second appended to one stream, each acknowledged after its sync."""
        command = [self.benchmark, "-p", str(self.port), "-c", str(connections), "-P", str(in_flight), "-n", str(requests)]
        command += ["--csv", "XADD", "stream", "*", "v", "x" * value_bytes]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        rows = list(csv.DictReader(line for line in run.stdout.splitlines() if line.startswith('"')))
        if run.returncode or not rows:
            raise LoadFailedError(f"redis-benchmark ended with {run.returncode}: {run.stdout[-500:]} {run.stderr[-500:]}")
        return float(rows[-1]["rps"])


@contextmanager
def redis(directory: str) -> Iterator[RedisPeer]:
    """A server whose files lie in `directory`. Raises PeerMissingError."""
    server, benchmark = executable("redis-server", DEBIAN_PACKAGE), executable("redis-benchmark", "redis-tools")
    port = free_port()
    options = {"port": port, "dir": directory, "bind": "127.0.0.1", "appendonly": "yes", "appendfsync": "always", "save": ""}
    command = [server, *(part for key, value in options.items() for part in (f"--{key}", str(value)))]
    with running(command, port, Path(directory, "redis.log")):
        version, _, _ = program_version([server, "--version"]).partition(" sha=")  # how it was built follows
        yield RedisPeer(port, benchmark, version)
