"""A `triolog serve` process that can be killed and started again on the same directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

START_TIMEOUT_S: Final = 30
STOP_TIMEOUT_S: Final = 30
POLL_S: Final = 0.002
LOG_TAIL_LINES: Final = 10


class ServerFailedError(Exception):
    """The process did not start, ended by itself, or did not stop."""


class ServerProcess:
    """One server, several processes after each other. Owned by the task that opened it."""

    def __init__(self, data_dir: Path, work_dir: Path) -> None:
        self._data_dir = data_dir
        self._ready_file = work_dir / "ready.json"
        self._log_file = work_dir / "server.log"
        self._process: trio.Process | None = None
        self._address = ("", 0)

    def address(self) -> tuple[str, int]:
        """Where the server is, or was when it was last ready."""
        return self._address

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> float:
        """Start a process; returns when it accepts, with the milliseconds that took. ServerFailedError."""
        assert self._process is None, "a server runs already"
        begin = time.perf_counter()
        self._ready_file.unlink(missing_ok=True)
        with self._log_file.open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment()
            )
        with trio.move_on_after(START_TIMEOUT_S):
            while not self._ready_file.exists():
                if self._process.poll() is not None:
                    raise ServerFailedError(
                        f"the server ended with {self._process.returncode}; its log ends with\n{self.log()}"
                    )
                await trio.sleep(POLL_S)
            host, port = json.loads(self._ready_file.read_text())["native"].rsplit(":", 1)
            self._address = (host.strip("[]"), int(port))
            return (time.perf_counter() - begin) * 1000
        raise ServerFailedError(f"the server was not ready within {START_TIMEOUT_S} s; its log ends with\n{self.log()}")

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
        raise ServerFailedError(f"the server did not stop within {STOP_TIMEOUT_S} s; its log ends with\n{self.log()}")

    async def close(self) -> None:
        """Leave no process behind, whatever has happened."""
        if self._process is not None:
            with trio.CancelScope(shield=True):
                self.kill()
                await self.wait()

    def log(self) -> str:
        """The last lines that the server wrote."""
        return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "triolog.tools.cli", "serve"),
            *("--data-dir", str(self._data_dir)),
            *("--native", "127.0.0.1:0"),
            *("--ready-file", str(self._ready_file)),
            *("--durability", "fsync"),
        ]


def _environment() -> dict[str, str]:
    """Without TRIOLOG_* variables: the demo shows the defaults."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TRIOLOG_")}


@asynccontextmanager
async def open_server(data_dir: Path, work_dir: Path) -> AsyncIterator[ServerProcess]:
    """A running server; leaving the block kills what still runs of it."""
    server = ServerProcess(data_dir, work_dir)
    try:
        await server.start()
        yield server
    finally:
        await server.close()
