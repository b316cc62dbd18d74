"""Unhandled exceptions of background tasks: each stays with the id, group, partition or job that it is about.

A task over many of them isolates each one. The exception is logged with its traceback and counted by task, the one is skipped,
and the task tries it again when it comes round the next time. Only LogDirectoryError goes on: without any log directory no
server is left to serve.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import attrs
import trio

from ..storage.errors import LogDirectoryError

LOGGER: Final = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
"""After an unhandled exception of a whole step."""


@attrs.define(eq=False, repr=False)
class TaskErrors:
    """Owner: a disk, which all tasks of a broker share. Called in the trio thread."""

    counts: Counter[str] = attrs.field(factory=Counter)
    """By task, since the start."""

    @contextmanager
    def isolate(self, task: str, name: object = "") -> Iterator[None]:
        """Keep an unhandled exception of the block from the rest of the task. `name`: the id, group or partition."""
        try:
            yield
        except LogDirectoryError:
            raise
        except Exception as exc:
            self.note(task, name, exc)

    async def repeat(self, task: str, step: Callable[[], Awaitable[object]]) -> NoReturn:
        """Call `step`, which waits for what it is about, again and again until cancelled."""
        while True:
            with self.isolate(task):
                await step()
                continue
            await trio.sleep(PAUSE_S)

    def note(self, task: str, name: object, error: Exception) -> None:
        """Count and log an error. Raises it when a LogDirectoryError is in it."""
        if isinstance(error, ExceptionGroup) and error.subgroup(LogDirectoryError) is not None:
            raise error
        self.counts[task] += 1
        LOGGER.error(
            "unhandled exception: task=%s name=%s; the server skips it, retries it later and continues",
            task,
            name,
            exc_info=error,
        )
