"""A real `triolog serve` in a process of its own, and what the kernel says of its memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from ....server.config.broker_settings import VARIABLE_PREFIX
from .child import LoadFailedError
from .process import bytes_read, children, memory_mib

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.0005
COMMAND: Final = (sys.executable, "-c", "from triolog.tools.cli.main import main; main()")
"""What the console script does, without having to find it."""


@attrs.define(eq=False, repr=False)
class Server:
    """A running server. `stop` and leaving `serving` end it."""

    process: subprocess.Popen[bytes]
    address: tuple[str, int]
    data: str
    kafka: str = ""
    """Where Kafka clients are answered, when it was asked to."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """SIGTERM, and wait for the orderly end."""
        self.process.send_signal(signal.SIGTERM)
        if code := self.process.wait(STOP_TIMEOUT_S):
            raise LoadFailedError(f"triolog serve ended with {code}")

    def kill(self) -> None:
        """SIGKILL: what was not synced is in the page cache only."""
        self.process.kill()
        self.process.wait()

    def children(self) -> list[int]:
        """Processes that it has at work."""
        return children(self.pid)

    def memory_mib(self) -> dict[str, float]:
        """VmRSS and what it is made of, the peak too."""
        return memory_mib(self.pid)

    def bytes_read(self) -> int:
        """By system calls, its modules included."""
        return bytes_read(self.pid)

    def idle_memory_mib(self, *, settle_s: float = 2.0) -> dict[str, float]:
        """Memory once it has stood still for a quarter of a second, or as it is after `settle_s`."""
        deadline = time.monotonic() + settle_s
        before = self.memory_mib()
        while time.monotonic() < deadline:
            time.sleep(0.25)
            now = self.memory_mib()
            if now["VmRSS"] == before["VmRSS"]:
                return now
            before = now
        return before


@contextmanager
def serving(
    directory: str, *, durability: str = "os", settings: Mapping[str, int] | None = None, kafka: bool = False
) -> Iterator[Server]:
    """A server on `directory`/data for the time of the block; killed if it does not stop. `settings` are keys of its own;
    `kafka`: with a listener for Kafka clients, too."""
    with _spawned(directory, durability, settings or {}, ["--kafka", "127.0.0.1:0"] if kafka else []) as process:
        addresses = _wait_until_ready(process, Path(directory, "ready"))
        host, port = addresses["native"].rsplit(":", 1)
        server = Server(process, (host, int(port)), f"{directory}/data", addresses.get("kafka", ""))
        yield server
        if process.poll() is None:
            server.stop()


@contextmanager
def _spawned(
    directory: str, durability: str, settings: Mapping[str, int], options: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    ready = Path(directory, "ready")
    ready.unlink(missing_ok=True)
    command = [*COMMAND, "serve", "--data-dir", f"{directory}/data", "--native", "127.0.0.1:0", "--ready-file", str(ready)]
    command += ["--durability", durability, "--log-level", "warning", *options]
    environment = {**os.environ, **{f"{VARIABLE_PREFIX}{key.upper()}": str(value) for key, value in settings.items()}}
    with Path(directory, "serve.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], ready: Path) -> dict[str, str]:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if ready.exists():
            addresses: dict[str, str] = json.loads(ready.read_text(encoding="utf-8"))
            return addresses
        if process.poll() is not None:
            log = ready.with_name("serve.log").read_text(encoding="utf-8", errors="replace")
            raise LoadFailedError(f"triolog serve ended with {process.returncode} before it was ready: {log[-2000:]}")
        time.sleep(POLL_S)
    raise LoadFailedError(f"triolog serve was not ready after {START_TIMEOUT_S:g} s")
