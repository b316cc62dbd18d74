"""What a command changes of its process, for commands that a test runs in its own."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def process_as_it_was() -> Iterator[None]:
    """The log and the answer to SIGHUP are as before when the block is left."""
    root = logging.getLogger()
    handlers, level, on_hangup = root.handlers[:], root.level, signal.getsignal(signal.SIGHUP)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        signal.signal(signal.SIGHUP, on_hangup)
