"""What the processes have in common that do a server's CPU-bound work: lines of JSON on standard input and output.

Such a process imports only `protocol.records` and `server.storage`. It ends when its standard input does, or when it has
another parent than at first: then the server is gone. It is nice to everybody else.
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


class ParentWatch:
    """Sees that the server is still there."""

    def __init__(self) -> None:
        self._parent = os.getppid()

    def check(self) -> None:
        """Raises ServerGoneError."""
        if os.getppid() != self._parent:
            raise ServerGoneError


def run_child(work: Callable[[TextIO, TextIO], None]) -> int:
    """Do the work between standard input and output; the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt from the terminal is for the server, which ends us
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    try:
        work(sys.stdin, sys.stdout)
    except (ServerGoneError, BrokenPipeError):
        return 1
    return 0
