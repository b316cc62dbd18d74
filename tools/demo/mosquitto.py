"""A real Mosquitto in a directory, with persistence: start, save, kill, start again.

Mosquitto acknowledges a message before it saves it: it keeps sessions and messages in memory, and writes all of them to its
file on SIGUSR1, and at intervals. A kill takes what was not saved, so `save` comes before `kill` where nothing may be lost.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from ...server.config.values import Address
from .processes import ProcessFailedError

PATH: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
"""Debian installs it where only root's PATH leads."""
PROGRAM: Final = shutil.which("mosquitto", path=PATH)
PATIENCE_S: Final = 60.0
POLL_S: Final = 0.005


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Block until it holds. Raises ProcessFailedError."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise ProcessFailedError(f"{what} did not happen within {PATIENCE_S:g} s")
        time.sleep(POLL_S)


@attrs.define(eq=False, repr=False)
class Mosquitto:
    """A broker's directory, and its process while it runs. All methods block."""

    folder: Path
    address: Address
    more: str = "allow_anonymous true\n"
    """Lines of its configuration."""
    _process: subprocess.Popen[bytes] | None = None

    @property
    def saved(self) -> Path:
        return self.folder / "mosquitto.db"

    @property
    def log(self) -> Path:
        return self.folder / "mosquitto.log"

    @property
    def pid(self) -> int:
        assert self._process is not None, "Mosquitto does not run"
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it listens. Raises ProcessFailedError."""
        assert PROGRAM is not None
        file, log = self.folder / "mosquitto.conf", self.log
        file.write_text(
            f"listener {self.address.port} {self.address.host}\npersistence true\nuser root\n"
            f"persistence_location {self.folder}/\nmax_queued_messages 0\n{self.more}\n"
        )
        with log.open("ab") as output:
            begun = log.stat().st_size
            command = [PROGRAM, "-c", str(file), "-v"]
            self._process = process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

        def is_up() -> bool:
            if process.poll() is not None:
                text = log.read_text(encoding="utf-8", errors="replace")
                raise ProcessFailedError(f"Mosquitto ended with {process.returncode}:\n{text}")
            return b" running" in log.read_bytes()[begun:]

        wait_until(is_up, "the start of Mosquitto")

    def save(self) -> None:
        """Let it write sessions and messages to its file, and wait for that. Raises ProcessFailedError."""
        before = self._number()
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR1)
        wait_until(lambda: self._number() != before, "the save of Mosquitto")

    def kill(self) -> int | None:
        """Send SIGKILL and return the exit status; None when it does not run."""
        if self._process is None:
            return None
        self._process.kill()
        status = self._process.wait()
        self._process = None
        return status

    def _number(self) -> tuple[int, int]:
        """Return the inode and the time of the file, which is another one after each save."""
        with suppress(FileNotFoundError):
            found = self.saved.stat()
            return found.st_ino, found.st_mtime_ns
        return 0, 0
