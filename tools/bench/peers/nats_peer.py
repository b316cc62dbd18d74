"""NATS JetStream with file storage, driven by nats.go: the program in `peers/nats`, built when it is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from ..measuring.child import LoadFailedError
from .peer import PeerMissingError, executable, free_port, program_version, running

DEBIAN_PACKAGE: Final = "nats-server"
SOURCES: Final = Path(__file__).parent / "nats"
SOURCE_FILES: Final = ("main.go", "go.mod", "go.sum")
BUILD_TIMEOUT_S: Final = 300.0


@attrs.frozen
class NatsPeer:
    """A running server and its publisher."""

    port: int
    publisher: str
    version: str

    def publish_rate(self, *, messages: int, value_bytes: int, in_flight: int) -> float:
        """Acknowledged messages per second, into a stream that is deleted afterwards."""
        command = [self.publisher, "-address", f"127.0.0.1:{self.port}", "-messages", str(messages)]
        command += ["-bytes", str(value_bytes), "-in-flight", str(in_flight)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise LoadFailedError(f"the NATS publisher ended with {run.returncode}: {run.stderr[-1000:]}")
        return float(json.loads(run.stdout)["rate"])


@contextmanager
def nats(directory: str) -> Iterator[NatsPeer]:
    """A server whose files lie in `directory`. Raises PeerMissingError."""
    server = executable("nats-server", DEBIAN_PACKAGE)
    publisher = build_publisher()
    port = free_port()
    command = [server, "--jetstream", "--store_dir", f"{directory}/jetstream", "--addr", "127.0.0.1", "--port", str(port)]
    with running(command, port, Path(directory, "nats.log")):
        yield NatsPeer(port, publisher, program_version([server, "--version"]))


def build_publisher() -> str:
    """The publisher's path; built in the user's cache directory, anew when its sources are newer. Raises PeerMissingError."""
    go = shutil.which("go")
    if go is None:
        raise PeerMissingError("Go is not installed, nats.go cannot be built")
    if not all((SOURCES / name).is_file() for name in SOURCE_FILES):
        raise PeerMissingError(f"the publisher's source is not in {SOURCES}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triolog-bench"
    binary = cache / "nats-publisher"
    newest = max((SOURCES / name).stat().st_mtime for name in SOURCE_FILES)
    if not binary.is_file() or binary.stat().st_mtime < newest:
        cache.mkdir(parents=True, exist_ok=True)
        command = [go, "build", "-buildvcs=false", "-mod=readonly", "-o", str(binary), "."]
        try:
            run = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise PeerMissingError(f"nats.go was not built within {BUILD_TIMEOUT_S:g} s") from None
        if run.returncode:
            raise PeerMissingError(f"nats.go cannot be built: {run.stderr.strip()[-300:]}")
    return str(binary)
