"""A process of ours that says when it is ready, can be killed, and be started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

START_TIMEOUT_S: Final = 30
STOP_TIMEOUT_S: Final = 30
POLL_S: Final = 0.002
LOG_TAIL_LINES: Final = 10


class ServerFailedError(Exception):
    """The process did not start, ended by itself, or did not stop."""


class Child(ABC):
    """A `triolog` command that runs until it is told to end; several processes after each other. Owned by the task that
    opened it. `name` is for people, as in `the server`."""

    def __init__(self, name: str, ready_file: Path, log_file: Path, environment: Mapping[str, str]) -> None:
        self._name = name
        self._ready_file = ready_file
        self._log_file = log_file
        self._environment = environment
        self._process: trio.Process | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> float:
        """Start a process; returns when it is ready, with the milliseconds that took. ServerFailedError."""
        assert self._process is None, f"{self._name} runs already"
        begin = time.perf_counter()
        self._ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "triolog.tools.cli", *self._arguments()]
        with self._log_file.open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(self._environment)
            )
        with trio.move_on_after(START_TIMEOUT_S):
            while not self._ready_file.exists():
                if self._process.poll() is not None:
                    raise self.failed(f"ended with {self._process.returncode}")
                await trio.sleep(POLL_S)
            return (time.perf_counter() - begin) * 1000
        raise self.failed(f"was not ready within {START_TIMEOUT_S} s")

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed. `wait` comes next."""
        assert self._process is not None
        self._process.kill()

    async def wait(self) -> int:
        """Wait for the end of the process; returns its exit status, negative for a signal."""
        assert self._process is not None
        status = await self._process.wait()
        self._process = None
        return status

    async def stop(self) -> int:
        """SIGTERM, and wait for the orderly end; returns the exit status. ServerFailedError."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        with trio.move_on_after(STOP_TIMEOUT_S):
            return await self.wait()
        raise self.failed(f"did not stop within {STOP_TIMEOUT_S} s")

    async def close(self) -> None:
        """Leave no process behind, whatever has happened."""
        if self._process is not None:
            with trio.CancelScope(shield=True):
                self.kill()
                await self.wait()

    def log(self) -> str:
        """The last lines that it wrote."""
        return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def failed(self, how: str) -> ServerFailedError:
        """What to raise, with the last lines that it wrote."""
        return ServerFailedError(f"{self._name} {how}; its log ends with\n{self.log()}")

    @abstractmethod
    def _arguments(self) -> Sequence[str]:
        """Of the `triolog` command."""


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Without the caller's TRIOLOG_* variables: a demo shows the defaults, but for what it says itself."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TRIOLOG_")} | dict(more)
