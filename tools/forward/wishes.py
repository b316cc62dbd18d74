"""Requests to a link: any thread may set them, and each wakes the link's thread, which reads them."""

from __future__ import annotations

import threading
import time
from typing import Final

GRACE_S: Final = 5.0
"""How long a link that is to end may go on committing what it has handed over."""


class Wishes:
    """Thread-safe."""

    def __init__(self, *, paused: bool = False, drain_and_end: bool = False) -> None:
        self._changed = threading.Condition()
        self._version = 0
        self._is_paused = paused
        self._stop_s: float | None = None
        self._drain_s: float | None = time.monotonic() if drain_and_end else None
        self.ends_when_drained: Final = drain_and_end

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def is_stopping(self) -> bool:
        return self._stop_s is not None

    @property
    def drains_since_s(self) -> float | None:
        """Since when everything is to go, in monotonic seconds; None: it goes as always."""
        return self._drain_s

    def is_patient(self) -> bool:
        """Return whether time is left to wait for the upstream."""
        return self._stop_s is None or time.monotonic() < self._stop_s + GRACE_S

    def pause(self) -> None:
        with self._changed:
            self._is_paused = True
            self._drain_s = None
            self._tell()

    def resume(self) -> None:
        with self._changed:
            self._is_paused = False
            self._tell()

    def stop(self) -> None:
        with self._changed:
            if self._stop_s is None:
                self._stop_s = time.monotonic()
            self._tell()

    def drain(self) -> None:
        with self._changed:
            self._drain_s = time.monotonic()
            self._tell()

    def drained(self, since_s: float | None = None) -> None:
        """Told by the link: nothing is left of what was there at `since_s`. Or, without it, nobody waits any longer."""
        with self._changed:
            if since_s in (None, self._drain_s):
                self._drain_s = None

    @property
    def version(self) -> int:
        """Another one when somebody wants something else."""
        return self._version

    def wait(self, timeout_s: float, seen: int) -> bool:
        """Until the version is no longer the one that was `seen`, or so long. True when it is another one."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version != seen, max(0.0, timeout_s))

    def _tell(self) -> None:
        self._version += 1
        self._changed.notify_all()
