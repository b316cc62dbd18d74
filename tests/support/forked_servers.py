"""Real server processes that need not load anything first: forks of a program that has loaded what `triolog serve` loads.

A start takes a tenth of what the command takes, so tests that kill one server after the other spend their time on what the
server does. All else is the command's: its arguments, its `main`, a process with signals, files and locks of its own. What
is claimed of the command itself (its interpreter, what it loads, its exit codes) is tested with the command.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import attrs

from tests.support.server_forker import MAX_MESSAGE_BYTES

PROGRAM: Final = Path(__file__).with_name("server_forker.py")


@attrs.define(eq=False)
class ServerForker:
    """The program and the socket to it. Any thread may ask; one at a time does."""

    _process: subprocess.Popen[bytes]
    _socket: socket.socket
    _lock: threading.Lock = attrs.field(factory=threading.Lock)
    _open_files: tuple[int, int] | None = None
    """The soft and the hard limit of what it forks; None: as many as this program may open."""

    @classmethod
    @contextmanager
    def running(cls, environment: Mapping[str, str], *modules: str) -> Iterator[Self]:
        """It lives as long as the block, and what it has forked does not live longer. `modules` are loaded too."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, str(PROGRAM), str(theirs.fileno()), *modules],
                    pass_fds=(theirs.fileno(),),
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                )
            yield cls(process, ours)
        process.wait()

    def limited_to(self, soft: int, hard: int | None = None) -> ServerForker:
        """The same program, whose forks may open so many files."""
        return attrs.evolve(self, open_files=(soft, soft if hard is None else hard))

    def fork(self, arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str], output: Path) -> ForkedProcess:
        """`triolog ARGUMENTS`; what it writes goes to `output`, which is there."""
        request = {
            "arguments": [*arguments],
            "cwd": str(cwd),
            "environment": dict(environment),
            "output": str(output),
            "open_files": self._open_files,
        }
        pid = self.ask(request)
        return ForkedProcess(self, [*arguments], pid, os.pidfd_open(pid))

    def ask(self, request: Mapping[str, Any]) -> int:
        with self._lock:
            self._socket.send(json.dumps(request).encode())
            answer: int = json.loads(self._socket.recv(MAX_MESSAGE_BYTES))
        return answer


@attrs.define(eq=False)
class ForkedProcess:
    """What tests use of `subprocess.Popen`, for a process whose parent is the forker. Its pid is its own until it is reaped."""

    _forker: ServerForker
    args: list[str]
    pid: int
    _pidfd: int
    returncode: int | None = None
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def poll(self) -> int | None:
        return self._await(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._await(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        with self._lock:
            if self.returncode is None:
                signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _await(self, timeout_s: float | None) -> int | None:
        """Its status, or None when the time is over. The kernel says that it has ended when its files and locks are gone."""
        with self._lock:
            if self.returncode is None:
                poll = select.poll()
                poll.register(self._pidfd, select.POLLIN)
                if not poll.poll(None if timeout_s is None else timeout_s * 1000):
                    return None
                self.returncode = self._forker.ask({"reap": self.pid})
                os.close(self._pidfd)
            return self.returncode
