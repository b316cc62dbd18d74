"""`triolog` commands in processes of their own, for demos and benchmarks: start, kill, start again on the same files, stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Self

import attrs

COMMAND: Final = (sys.executable, "-m", "triolog.tools.cli")
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.0005
LOG_TAIL_LINES: Final = 10


class ProcessFailedError(Exception):
    """A process did not start, ended by itself, or did not stop; the message has the last lines of its log."""


@attrs.define(eq=False, repr=False)
class Process:
    """A command, run by several processes in turn. All methods block. Leaving the block kills the running process.

    The environment is the caller's without TRIOLOG_* variables, and with `variables`: settings outside it have their defaults.
    """

    name: str
    """For people: `the server`."""
    folder: Path
    """Holds `process.ready` and `process.log`."""
    arguments: Sequence[str]
    variables: Mapping[str, str] = attrs.field(factory=dict)
    process: subprocess.Popen[bytes] | None = None
    addresses: dict[str, str] = attrs.field(factory=dict)
    """HOST:PORT of each listener, as of the last start; empty for a command that has none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.kill()
            self.wait()

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} does not run"
        return self.process.pid

    @property
    def address(self) -> tuple[str, int]:
        """Return the address of the listener of the native protocol."""
        host, _, port = self.addresses["native"].rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def kafka(self) -> str:
        """Return HOST:PORT of the listener for Kafka clients."""
        return self.addresses["kafka"]

    def start(self) -> float:
        """Start a process and wait until it is ready; return the milliseconds that took. Raises ProcessFailedError."""
        assert self.process is None, f"{self.name} runs already"
        begin, ready = time.perf_counter(), self.folder / "process.ready"
        ready.unlink(missing_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TRIOLOG_")}
        command = [*COMMAND, *self.arguments, "--ready-file", str(ready)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=kept | dict(self.variables)
            )
        while not ready.exists():
            if self.process.poll() is not None:
                raise self.failed(f"ended with {self.process.returncode} before it was ready")
            if time.perf_counter() - begin > START_TIMEOUT_S:
                raise self.failed(f"was not ready within {START_TIMEOUT_S:g} s")
            time.sleep(POLL_S)
        self.addresses = json.loads(ready.read_text(encoding="utf-8") or "{}")
        return (time.perf_counter() - begin) * 1000

    def kill(self) -> None:
        """Send SIGKILL: no handler runs, nothing is flushed. `wait` is next."""
        assert self.process is not None
        self.process.kill()

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the end; return the exit status, negative for a signal. Raises ProcessFailedError."""
        assert self.process is not None
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self.failed(f"did not end within {timeout_s:g} s") from None
        self.process = None
        return status

    def stop(self) -> int:
        """Send SIGTERM and wait for the clean shutdown; return the exit status. Raises ProcessFailedError."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.wait(STOP_TIMEOUT_S)

    def failed(self, how: str) -> ProcessFailedError:
        """Return an error with the last lines of the log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return ProcessFailedError("\n".join([f"{self.name} {how}; its log ends with", *lines]))

    @property
    def _log(self) -> Path:
        return self.folder / "process.log"


def serve_arguments(data_dir: Path | str, *options: str, durability: str = "fsync") -> tuple[str, ...]:
    """Return the arguments of a `triolog serve` on any port."""
    return ("serve", "--data-dir", str(data_dir), "--native", "127.0.0.1:0", "--durability", durability, *options)


@asynccontextmanager
async def started_server(data_dir: Path, folder: Path, *options: str) -> AsyncIterator[Process]:
    """Run a server for the time of the block. Raises ProcessFailedError.

    A thread starts it: Ctrl-C in the middle of `Popen` would leave a process that nothing knows.
    """
    import trio

    with Process("the server", folder, serve_arguments(data_dir, *options)) as server:
        await trio.to_thread.run_sync(server.start)
        yield server
