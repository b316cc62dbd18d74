"""A stand-in for systemd: it runs a server with NOTIFY_SOCKET and WATCHDOG_USEC, reads what it is told, and starts it again.

How systemd does it: the socket's datagrams are lines `NAME=value`; a service that has not said WATCHDOG=1 within its time gets
SIGABRT, and SIGKILL when that does not end it. Here the time counts only while the test says so (`restart_when_silent`): a busy
machine ends no server that is well.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs

from tests.support.forked_servers import ServerForker
from tests.support.server_process import COMMAND, DEADLINE_S, ServerProcess

DATAGRAM_BYTES: Final = 65536
ABORT_S: Final = 2.0
"""Between SIGABRT and SIGKILL."""
MOST_FEEDINGS: Final = 10
"""That a server which hangs may have sent before it did."""


@attrs.define(eq=False)
class StandInSupervisor:
    """Leaving the block ends what it runs."""

    folder: Path
    arguments: Sequence[str]
    watchdog_s: float | None = None
    command: Sequence[str] | ServerForker = COMMAND
    is_abstract: bool = False
    runs: list[ServerProcess] = attrs.field(factory=list)
    told: list[str] = attrs.field(factory=list)
    """Every line so far."""
    _socket: socket.socket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._address.replace("@", "\0") if self.is_abstract else self._address)

    @property
    def _address(self) -> str:
        return f"@{self.folder}" if self.is_abstract else str(self.folder / "notify")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for run in self.runs:
            run.__exit__(kind, error, traceback)
        self._socket.close()

    @property
    def server(self) -> ServerProcess:
        """The one that runs, or ran last."""
        return self.runs[-1]

    def start(self, extra_environment: Mapping[str, str] | None = None) -> ServerProcess:
        """Start it; READY=1 is not awaited."""
        variables = {"NOTIFY_SOCKET": self._address, **(extra_environment or {})}
        if self.watchdog_s is not None:
            variables["WATCHDOG_USEC"] = str(round(self.watchdog_s * 1e6))
        name = f"supervised-{len(self.runs)}"
        started = ServerProcess.spawn(self.folder, self.arguments, name=name, command=self.command, extra_environment=variables)
        self.runs.append(started)
        return started

    def lines(self, deadline_s: float = DEADLINE_S) -> list[str]:
        """The lines of the next datagram. Raises TimeoutError."""
        self._socket.settimeout(deadline_s)
        lines = self._socket.recv(DATAGRAM_BYTES).decode().split("\n")
        self.told += lines
        return lines

    def await_line(self, line: str) -> list[str]:
        """Read until a datagram has this line, and answer all of that one's."""
        while line not in (lines := self.lines()):
            pass
        return lines

    def await_silence(self) -> None:
        """Read until the watchdog's time passes without WATCHDOG=1."""
        assert self.watchdog_s is not None
        for _ in range(MOST_FEEDINGS):
            try:
                while "WATCHDOG=1" not in self.lines(self.watchdog_s):
                    pass
            except TimeoutError:
                return
        raise AssertionError(f"the watchdog of a server that hangs was fed {MOST_FEEDINGS} times\n{self.server.stderr()}")

    def abort(self) -> int:
        """End it as systemd ends a service whose watchdog was not fed; answers the exit code."""
        process = self.server.process
        process.send_signal(signal.SIGABRT)
        try:
            return process.wait(ABORT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait(DEADLINE_S)

    def restart_when_silent(self) -> int:
        """Wait for silence, end it, start it again, as systemd does with `Restart=on-failure`; answers the first one's code."""
        self.await_silence()
        code = self.abort()
        self.start()
        return code
