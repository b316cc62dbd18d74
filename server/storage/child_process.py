"""What the processes have in common that do a server's CPU-bound work: lines of JSON on standard input and output.

Such a process imports only `protocol.records` and `server.storage`. Its argument is the server's process id. It ends when its
standard input does, or when it has another parent: then the server is gone. It is nice to everybody else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Final, TextIO

NICENESS: Final = 10


class ServerGoneError(Exception):
    """Nobody waits for the result."""


def say(output: TextIO, **message: object) -> None:
    """One line of JSON."""
    output.write(json.dumps(message) + "\n")
    output.flush()


def read_line(source: TextIO) -> str:
    """What the server says next. Raises ServerGoneError when it ended before it had said it, or half way."""
    line = source.readline()
    if not line.endswith("\n"):
        raise ServerGoneError
    return line


class ParentWatch:
    """Sees that the server is still there, which may have ended before we have loaded anything."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid

    def check(self) -> None:
        """Raises ServerGoneError."""
        if self.is_alone():
            raise ServerGoneError

    def is_alone(self) -> bool:
        return os.getppid() != self._server_pid


def run_child(work: Callable[[TextIO, TextIO, ParentWatch], None]) -> int:
    """Do the work between standard input and output; the exit status.

    When the server is gone nobody wants to know what this process meets: its files change hands.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt from the terminal is for the server, which ends us
    watch = ParentWatch(int(sys.argv[1]))
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    try:
        work(sys.stdin, sys.stdout, watch)
    except (ServerGoneError, BrokenPipeError):
        _forget_output()
        return 1
    except Exception:
        if not watch.is_alone():
            raise
        _forget_output()
        return 1
    return 0


def _forget_output() -> None:
    """The interpreter flushes what nobody reads once more at its end, and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
