"""The protocol of the child processes that do a server's CPU-bound work: lines of JSON on standard input and output.

Such a process imports only `protocol.records` and `server.storage`. Its first argument is the server's process id. It ends with
its standard input, or when its parent is another process, because then the server is gone. It runs at a low priority.

A limit on bytes per second, of reads and writes together (Kafka: Throttler, log.cleaner.io.max.bytes.per.second).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

import attrs

NICENESS: Final = 10


class ServerGoneError(Exception):
    """Nobody waits for the result."""


def say(output: TextIO, **message: object) -> None:
    """Write a message as a line of JSON."""
    output.write(json.dumps(message) + "\n")
    output.flush()


def read_line(source: TextIO) -> str:
    """Return the server's next message. Raises ServerGoneError when the server ended before or within the message."""
    line = source.readline()
    if not line.endswith("\n"):
        raise ServerGoneError
    return line


@attrs.frozen
class ParentWatch:
    """Checks that the server is still there; it may have ended before this process has loaded anything."""

    _server_pid: int

    def check(self) -> None:
        """Raises ServerGoneError."""
        if self.is_alone():
            raise ServerGoneError

    def is_alone(self) -> bool:
        return os.getppid() != self._server_pid


def run_child(work: Callable[[TextIO, TextIO, ParentWatch], None]) -> int:
    """Run `work` on standard input and output; returns the exit status.

    Errors are not reported once the server is gone: its files may belong to another server by then.
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
    """Send the rest of the output nowhere: the interpreter flushes it at exit, and would complain about a broken pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


MAX_PAUSE_S: Final = 1.0
"""No pause is longer, so that whoever waits for the work to be given up does not wait long."""


@attrs.define(eq=False, repr=False)
class Throttle:
    """Owner: one piece of work. `clock` and `sleep` are in seconds."""

    _max_bytes_per_second: int
    _clock: Callable[[], float] = time.monotonic
    _sleep: Callable[[float], None] = time.sleep
    _allowed_at: float = 0.0

    def spend(self, size: int, keep_on: Callable[[], None]) -> None:
        """Wait until `size` more bytes may have been read or written; `keep_on` is called between pauses and may raise."""
        if not self._max_bytes_per_second:
            return
        now = self._clock()
        self._allowed_at = max(self._allowed_at, now) + size / self._max_bytes_per_second
        while (ahead := self._allowed_at - self._clock()) > 0:
            self._sleep(min(ahead, MAX_PAUSE_S))
            keep_on()
