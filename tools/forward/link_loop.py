"""The states of a link for the lifetime of its process: sessions, and the pauses, closed windows and backoff between them.

A link runs in a thread of its own, because its clients block. Subclasses have the sessions: links to a Kafka upstream, and
ingest.
"""

from __future__ import annotations

import logging
import random
import time
from typing import Any, Final

from .errors import ForwardError, LinkStoppedError, SettingsError, SourceFailedError, TryAgainError
from .memory import Wishes
from .pacing import Failure, Retry
from .progress import LinkEvent, LinkState, Progress

LOOK_S: Final = 2.0
"""How often a link that sends nothing looks how long its backlog is."""


class LinkLoop:
    """Owner: its thread, which runs `run`. Others ask `progress` and tell `wishes`."""

    def __init__(self, settings: Any, progress: Progress, wishes: Wishes, jitter: random.Random | None = None) -> None:
        self.settings = settings
        """An attrs class whose fields are keys (see `server.config.key`), among them `name`."""
        self.progress = progress
        self.wishes = wishes
        self.error: ForwardError | None = None
        """Why it has failed."""
        self._log: Final = logging.getLogger(type(self).__module__)
        self._retry = Retry(jitter or random.Random())
        self._seen = -1

    def run(self) -> None:
        """Until it is told to stop, is drained and was to end then, or has failed. An unhandled exception fails it alone."""
        try:
            self._open()
            try:
                while not self.progress.state.is_final:
                    self._go_on()
            finally:
                self._close()
        except Exception as exc:
            self._log.exception("unhandled exception: link=%s failed, the others continue", self.settings.name)
            self.error = LinkStoppedError(
                f"unhandled exception ({exc!r}). Send SIGHUP to start the link again, and please report this"
            )
            self.progress.failed(str(self.error))
            if not self.progress.state.is_final:
                self._happened(LinkEvent.FAIL)

    def release(self) -> None:
        """It has ended, and another one may have its name."""

    # ---- for subclasses --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Before the first session."""

    def _close(self) -> None:
        """After the last session."""

    def _session(self) -> None:
        """Run one session, until somebody wants something else. Raises ForwardError; its end decides the next event."""
        raise NotImplementedError

    def _wanted_anew(self) -> None:
        """Somebody wants something else."""

    def _closed_for_s(self) -> float:
        """Return the seconds until the link may run; 0: it may."""
        return 0.0

    def _look(self) -> None:
        """Look around while the link rests."""

    def _must_wait(self, error: ForwardError | None) -> bool:
        """Return whether to back off before the next session."""
        return isinstance(error, TryAgainError)

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self.wishes.version != self._seen:
            self._wanted_anew()
        self._seen = self.wishes.version
        if self.wishes.is_stopping:
            self._happened(LinkEvent.STOP)
        elif self.wishes.is_paused:
            self._rest(LinkEvent.PAUSE, LinkState.PAUSED, LinkEvent.RESUME, None)
        elif wait_s := self._closed_for_s():
            self._rest(LinkEvent.WINDOW_CLOSES, LinkState.WAITING, LinkEvent.WINDOW_OPENS, wait_s)
        else:
            self._connect_and_run()

    def _connect_and_run(self) -> None:
        error: ForwardError | None = None
        if self.progress.state is not LinkState.CONNECTING:
            self._happened(LinkEvent.RECONNECT)
        try:
            self._session()
        except (LinkStoppedError, SettingsError) as exc:
            error = self.error = exc
        except ForwardError as exc:
            error = exc
        except Exception as exc:
            self._log.exception("unhandled exception: link=%s; the link retries, the others continue", self.settings.name)
            error = TryAgainError(f"unhandled exception ({exc!r}). The log has a traceback, please report this")
        self._after(None if error is None else error.bare())

    def _after(self, error: ForwardError | None) -> None:
        if self.error is not None:
            self.progress.failed(str(self.error))
            self._happened(LinkEvent.FAIL)
            return
        if self._must_wait(error):
            self.progress.failed(str(error))
            if self.wishes.is_stopping:
                return
            failure = error.failure if isinstance(error, TryAgainError) else Failure.REFUSED
            pause_s = self._retry.pause_s(failure, is_awaited=self.wishes.drains_since_s is not None)
            level = logging.WARNING if self._retry.is_news(str(error)) else logging.DEBUG
            self._log.log(level, "link %s: %s, trying again in %.1f s", self.settings.name, error, pause_s)
            looks = not isinstance(error, SourceFailedError)
            self._rest(LinkEvent.LOST, LinkState.BACKING_OFF, LinkEvent.TRY_AGAIN, pause_s, looks=looks)

    def _rest(self, event: LinkEvent, state: LinkState, ends: LinkEvent, wait_s: float | None, *, looks: bool = True) -> None:
        """Run no session for so long, or until somebody wants something else, and look around meanwhile."""
        if self.progress.state is not state:
            self._happened(event)
        until_s = float("inf") if wait_s is None else time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            if looks:
                self._look()
            if self.wishes.wait(min(left_s, LOOK_S), self._seen):
                break
        if self.wishes.is_stopping:
            return
        self._happened(ends)

    def _happened(self, event: LinkEvent) -> None:
        before = self.progress.state
        self.progress.happened(event)
        if event not in (LinkEvent.RECONNECT, LinkEvent.LOST, LinkEvent.TRY_AGAIN):  # why it is lost has been said
            self._log.info("link %s is %s, was %s", self.settings.name, self.progress.state.value, before.value)
